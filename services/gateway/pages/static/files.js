// What a job has stored, read when it is asked for: its files, and those of a checkpoint.
import { element, size } from "./format.js";

// Fills `box` (a list and a line of text) with the files of an answer.
async function fill(box, path, filesOf) {
  const list = box.querySelector(".files"), text = box.querySelector(".empty");
  text.hidden = false;
  text.textContent = "Loading …";
  list.replaceChildren();
  try {
    const answer = await fetch(path), got = await answer.json();
    if (!answer.ok) { text.textContent = got.detail ?? "The files are unavailable at the moment."; return; }
    const files = filesOf(got);
    list.replaceChildren(...files.map(({ name, bytes, href }) => element("li", {}, element("a", { href, download: true }, name), element("small", {}, size(bytes)))));
    const left = got.num_left_out ? `${got.num_left_out} more were not saved: ${got.left_out[0]}` : "";
    text.textContent = files.length ? left : `No files were saved. ${left}`;
    text.hidden = !text.textContent;
  } catch { text.textContent = "The files are unavailable at the moment."; }
}

export function followFiles(jobId) {
  const files = document.getElementById("files"), shards = document.getElementById("shards");
  files.addEventListener("toggle", () => {
    if (!files.open) return;
    const href = (path) => `/v1/jobs/${jobId}/files/content?${new URLSearchParams({ path })}`;
    fill(files, `/v1/jobs/${jobId}/files`, (got) => got.files.map((file) => ({ name: file.path, bytes: file.size_bytes, href: href(file.path) })));
  });
  // On the document, because the rows of a renewed table are new.
  document.addEventListener("click", async (event) => {
    const id = event.target.closest("[data-shards]")?.dataset.shards;
    if (!id) return;
    shards.hidden = false;
    shards.querySelector("h2").textContent = `Files of the checkpoint of step ${event.target.dataset.step}`;
    const href = (key) => `/v1/checkpoints/${id}/shards/content?${new URLSearchParams({ key })}`;
    await fill(shards, `/v1/checkpoints/${id}/shards`, (got) => got.shards.map((shard) => ({ name: shard.key, bytes: shard.size_bytes, href: href(shard.key) })));
    shards.focus();
  });
}
