"""Nodes and their slots."""

from datetime import datetime

from pydantic import BaseModel


class Slot(BaseModel):
    """One slot; held without a `job_id`: by a job of another tenant."""

    slot: int
    is_held: bool
    job_id: str | None
    name: str | None
    project: str | None
    attempt: int | None
    granted_at: datetime | None


class Node(BaseModel):
    """`unschedulable_reason`: why nothing new is placed on it at the moment, such as a cordon."""

    node_id: str
    pool: str | None
    device_type: str | None
    num_slots: int
    num_free: int
    is_removed: bool
    is_spot: bool | None
    topology: str | None
    unschedulable_reason: str | None
    slots: list[Slot]


class NodeList(BaseModel):
    nodes: list[Node]
