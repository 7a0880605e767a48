"""One AsyncAPI 3.0 document: every topic as a channel, every event type as a message.

From the platform's point of view: it receives `commands.*` and sends everything else. Payloads are
references to the JSON Schemas next to the document; keys, partitions and retention are in the
Kafka bindings.
"""

from typing import Any

import yaml

from contract_documents.json_schemas import file_name
from drivetrain_schemas.base import Payload
from drivetrain_schemas.envelope import SPEC_VERSION, data_schema
from drivetrain_schemas.ids import DEFAULT_TENANT
from drivetrain_schemas.topics import FOR_EVER, MIB, TOPICS, Topic

Document = dict[str, Any]
PREFIX = "drivetrain."
BINDING_VERSION = "0.5.0"
PARKED = "parked.record"

_ABOUT = """\
The events of Drivetrain, on Apache Kafka. Envelope: CloudEvents 1.0 by the Kafka protocol binding,
binary mode written, structured mode accepted. Topic names begin with a prefix that an installation
may change. Generated from schemas/drivetrain_schemas by `make gen`; docs/guides/submit-by-event.md
describes how to submit a job by event.
"""


def asyncapi(payload_classes: list[type[Payload]], version: str) -> Document:
    by_topic = {
        topic: [each for each in payload_classes if each.kind.topic == topic] for topic in TOPICS
    }
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Drivetrain",
            "version": version,
            "description": " ".join(_ABOUT.split()),
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "servers": {"standalone": _server()},
        "channels": {topic.name: _channel(topic, names_of(by_topic[topic])) for topic in TOPICS},
        "operations": {
            operation_id: operation
            for topic in TOPICS
            for operation_id, operation in [_operation(topic, names_of(by_topic[topic]))]
        },
        "components": {
            "securitySchemes": {"saslPlain": {"type": "plain"}},
            "schemas": {"cloudEventHeaders": _headers()},
            "messages": {
                **{message_name(each): _message(each) for each in payload_classes},
                PARKED: _parked_message(),
            },
        },
    }


def text(document: Document) -> str:
    return yaml.dump(document, Dumper=_Plain, sort_keys=False, allow_unicode=True, width=100)


class _Plain(yaml.SafeDumper):
    """YAML without anchors, so that readers of the document need not resolve them."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def message_name(payload_class: type[Payload]) -> str:
    return f"{payload_class.kind.type}.v{payload_class.kind.version}"


def names_of(payload_classes: list[type[Payload]]) -> list[str]:
    """The messages of a topic; a parked record keeps its original form."""
    return [message_name(each) for each in payload_classes]


def _server() -> Document:
    return {
        "host": "localhost:9092",
        "protocol": "kafka",
        "description": "The embedded broker; its port and credentials are in connection.json.",
        "security": [{"$ref": "#/components/securitySchemes/saslPlain"}],
    }


def _channel(topic: Topic, names: list[str]) -> Document:
    messages = names or ([PARKED] if topic.name.startswith("parked.") else [])
    return {
        "address": PREFIX + topic.name,
        "title": topic.name,
        "description": f"Key: {key(topic)}. {retention(topic)}",
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in messages},
        "bindings": {
            "kafka": {
                "topic": PREFIX + topic.name,
                "partitions": topic.partitions,
                "topicConfiguration": {
                    "cleanup.policy": ["delete"],
                    "retention.ms": topic.retention_ms,
                },
                "bindingVersion": BINDING_VERSION,
            }
        },
    }


def key(topic: Topic) -> str:
    return "the original key" if topic.name.startswith("parked.") else topic.key


def retention(topic: Topic) -> str:
    if topic.retention_ms == FOR_EVER:
        return "Kept forever."
    hours = topic.retention_ms // 3_600_000
    kept = f"Kept for {hours // 24} days" if hours >= 48 else f"Kept for {hours} h"
    if topic.retention_bytes > 0:
        kept += f", at most {topic.retention_bytes // MIB} MiB per partition"
    return f"{kept}."


def _operation(topic: Topic, names: list[str]) -> tuple[str, Document]:
    action = "receive" if topic.name.startswith("commands.") else "send"
    operation: Document = {
        "action": action,
        "channel": {"$ref": f"#/channels/{topic.name}"},
    }
    if names:
        operation["messages"] = [
            {"$ref": f"#/channels/{topic.name}/messages/{name}"} for name in names
        ]
    return f"{action}.{topic.name}", operation


def _message(payload_class: type[Payload]) -> Document:
    kind = payload_class.kind
    summary, _, description = meaning(payload_class).partition("\n\n")
    message: Document = {
        "name": kind.type,
        "title": payload_class.__name__,
        "summary": " ".join(summary.split()),
    }
    if description:
        message["description"] = " ".join(description.split())
    fixed = {
        "ce_type": {"const": kind.type},
        "ce_dataschema": {"const": data_schema(kind)},
    }
    return {
        **message,
        "contentType": "application/json",
        "headers": {
            "allOf": [
                {"$ref": "#/components/schemas/cloudEventHeaders"},
                {"type": "object", "properties": fixed},
            ]
        },
        "payload": {"$ref": f"./json/{file_name(payload_class)}"},
        "bindings": {
            "kafka": {
                "key": {"type": "string", "description": f"The payload's {kind.topic.key}"},
                "bindingVersion": BINDING_VERSION,
            }
        },
    }


def meaning(payload_class: type[Payload]) -> str:
    """The docstring of the class: what the event means."""
    lines = (payload_class.__doc__ or "").strip().splitlines()
    return "\n".join(line.strip() for line in lines)


def _headers() -> Document:
    def words(description: str, **more: Any) -> Document:
        return {"type": "string", "description": description, **more}

    return {
        "type": "object",
        "description": "CloudEvents attributes as Kafka headers, UTF-8.",
        "required": ["ce_specversion", "ce_id", "ce_source", "ce_type"],
        "properties": {
            "content-type": words("The media type of the value.", const="application/json"),
            "ce_specversion": words("CloudEvents version.", const=SPEC_VERSION),
            "ce_id": words("Unique per source; a repeated record keeps it.", maxLength=512),
            "ce_source": words("The sender, as a URI reference.", maxLength=512),
            "ce_type": words("The event type."),
            "ce_time": words(
                "When it happened; by default, the record's time.", format="date-time"
            ),
            "ce_subject": words("The same value as the key.", maxLength=512),
            "ce_dataschema": words("Type and version; without it, version 1."),
            "ce_tenantid": words("The tenant.", default=DEFAULT_TENANT),
            "ce_sequence": words("Numbers the events of one (topic, key) without a gap."),
            "ce_correlationid": words("The id of the first request.", maxLength=512),
            "ce_causationid": words("The id of the event that caused this one.", maxLength=512),
            "ce_traceparent": words("W3C Trace Context."),
        },
    }


def _parked_message() -> Document:
    facts = {
        "x-parked-id": "The id by which it can be shown and replayed.",
        "x-parked-reason": "The reason, for machines.",
        "x-parked-detail": "The reason, for people.",
        "x-parked-topic": "The original topic.",
        "x-parked-partition": "The original partition.",
        "x-parked-offset": "The original offset.",
        "x-parked-at": "When it was parked.",
        "x-parked-service": "The service that parked it.",
        "x-parked-tenant": "The tenant that the record names, where that can be read.",
    }
    properties = {
        name: {"type": "string", "description": description} for name, description in facts.items()
    }
    return {
        "name": "parked record",
        "title": "ParkedRecord",
        "summary": "A record that could not be handled: with its original key, value and headers.",
        "contentType": "application/octet-stream",
        "headers": {"type": "object", "properties": properties},
        "payload": {"description": "The original bytes."},
    }
