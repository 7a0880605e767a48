"""Commands about silences, written to Kafka and watched until the metrics service has answered."""

from drivetrain_schemas.silences import SilenceEnd, SilenceSet, SilenceSpec, silence_id_for
from services.gateway import queries
from services.gateway.commands import carry_out, event_id_of_key, raise_refusal, read
from services.gateway.context import Gateway


async def set_silence(gateway: Gateway, tenant_id: str, spec: SilenceSpec, key: str | None) -> bool:
    """True once it is in force; False without an answer yet. Raises Problem."""
    silence_id = silence_id_for(tenant_id, spec)
    event_id = event_id_of_key("silence.set", tenant_id, silence_id, key)
    command = SilenceSet(tenant_id=tenant_id, spec=spec)

    async def found() -> bool | None:
        await raise_refusal(gateway, event_id, silence_id)
        row = await read(gateway, queries.silences.find, tenant_id, silence_id)
        if row is None:
            return None
        # One that was the same before has no new event.
        is_the_same = (row["ends_at"], row["reason"]) == (spec.ends_at, spec.reason)
        is_set = is_the_same and row["changed_seq"] > row["ended_seq"]
        return True if is_set or row["command_event_id"] == event_id else None

    return bool(await carry_out(gateway, tenant_id, event_id, command, found))


async def end_silence(gateway: Gateway, tenant_id: str, silence_id: str, key: str | None) -> bool:
    """As `set_silence`."""
    event_id = event_id_of_key("silence.end", tenant_id, silence_id, key)
    command = SilenceEnd(tenant_id=tenant_id, silence_id=silence_id)

    async def found() -> bool | None:
        await raise_refusal(gateway, event_id, silence_id)
        row = await read(gateway, queries.silences.find, tenant_id, silence_id)
        is_ended = row is not None and row["ended_seq"] > row["changed_seq"]
        return True if is_ended else None

    return bool(await carry_out(gateway, tenant_id, event_id, command, found))
