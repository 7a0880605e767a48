-- What a search reads before it reads lines: the highest level in a chunk, and its size. Null: of a
-- chunk that was stored before; it is read.
alter table log_chunks add column max_level smallint;
alter table log_chunks add column size_bytes integer;
