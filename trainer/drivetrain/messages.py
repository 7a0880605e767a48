"""The messages between a rank and its shim: one line of JSON each, by the types of this module.

Any program can write to the socket, so what the shim reads is checked against them; fields that a
newer package adds are left out.
"""

from typing import Annotated

import msgspec

# The range allowed in payloads of events (drivetrain_schemas.units.Ordinal).
MAX_ORDINAL = 2**53
Ordinal = Annotated[int, msgspec.Meta(ge=0, le=MAX_ORDINAL)]
PHASE_PATTERN = r"^[a-z][a-z0-9_]{0,39}\Z"


class Samples(msgspec.Struct, tag_field="t", tag="samples"):
    """A batch of a rank. `is_result` marks values reported by a program without our loop."""

    run_id: str
    attempt: int
    fence: int
    rank: int
    session: str
    batch: int
    columns: msgspec.Raw
    num_samples: Ordinal = 1
    is_result: bool = False


class StepProgress(msgspec.Struct, tag_field="t", tag="progress"):
    """How far the rank has come; sent once a second."""

    step: Ordinal | None = None
    max_steps: int | None = None
    epoch: Ordinal | None = None
    state: str = "training"
    num_dropped: Ordinal = 0
    num_refused: Ordinal = 0


class PhaseBegun(msgspec.Struct, tag_field="t", tag="phase"):
    """What the script does between two steps from now on; None: nothing that it names."""

    name: Annotated[str, msgspec.Meta(pattern=PHASE_PATTERN)] | None = None


class CheckpointSaved(msgspec.Struct, tag_field="t", tag="checkpoint"):
    """A manifest was written."""

    step: Ordinal
    manifest_key: str
    save_seconds: float
    blocked_seconds: float


class SaveFailed(msgspec.Struct, tag_field="t", tag="save_failed"):
    """A checkpoint could not be written."""

    step: Ordinal
    reason: str
    detail: str


class Resumed(msgspec.Struct, tag_field="t", tag="resumed"):
    """Where the run continues; no key: from the beginning."""

    step: Ordinal
    manifest_key: str | None
    load_seconds: float
    rejected: list[str] = []


class Warned(msgspec.Struct, tag_field="t", tag="warned"):
    """The script does something that has no effect, or not the one it seems to have."""

    warning: str
    detail: str


class MediaSaved(msgspec.Struct, tag_field="t", tag="media"):
    """A picture, a table and so on is in the object store."""

    name: str
    step: Ordinal
    item: Ordinal
    number: Ordinal
    media: str
    sha256: str
    size_bytes: Ordinal
    image_form: str | None = None
    caption: str = ""
    file_name: str | None = None


class Described(msgspec.Struct, tag_field="t", tag="described"):
    """What rank 0 says of its surroundings: a `Surroundings` of the schemas, as JSON."""

    number: Ordinal
    surroundings: msgspec.Raw


class Ack(msgspec.Struct, tag_field="t", tag="ack"):
    """From the shim: this batch has arrived, or is dropped; it must not be sent again."""

    run_id: str
    session: str
    batch: int


Message = (
    Samples
    | StepProgress
    | PhaseBegun
    | CheckpointSaved
    | SaveFailed
    | Resumed
    | Warned
    | MediaSaved
    | Described
)
# For messages of a rank, and for replies of the shim.
decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)
ack_decoder: msgspec.json.Decoder[Ack] = msgspec.json.Decoder(Ack)


def encode_line(message: Message | Ack) -> bytes:
    return msgspec.json.encode(message) + b"\n"
