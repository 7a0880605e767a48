#!/usr/bin/env bash
# Submit a job by event with Kafka's console tools, and print the reply.
#
#   ./submit.sh job.json nightly-2026-01-31
#
# With KAFKA_HOME=<directory of an unpacked Kafka 4> it uses the scripts there. Without it, it uses the
# platform's Java archives and Java runtime; PYTHON is the platform's interpreter.
# Exit code 0: the job was queued; 1: it was refused; 2: no reply.
set -euo pipefail

spec_file=$1 request_id=$2 tenant=default
home=${DRIVETRAIN_HOME:-$HOME/.drivetrain}
here=$(cd "$(dirname "$0")" && pwd)
export PYTHON=${PYTHON:-$here/../../.venv/bin/python}
config=$(mktemp) # readable by its owner only
trap 'rm -f "$config"' EXIT

field() { "$PYTHON" -c 'import json, sys; print(json.load(open(sys.argv[1]))["kafka"][sys.argv[2]])' "$home/connection.json" "$1"; }
servers=$(field bootstrap_servers)
cat >"$config" <<EOF
security.protocol=SASL_PLAINTEXT
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="$(field username)" password="$(field password)";
EOF

# job_ and the first 26 base32 characters of SHA-256(tenant, NUL, request_id)
job_id=job_$(printf '%s\0%s' "$tenant" "$request_id" | sha256sum | cut -d' ' -f1 |
    sed 's/../\\x&/g' | xargs -0 printf '%b' | base32 -w0 | tr A-Z a-z | cut -c1-26)
value=$("$PYTHON" -c 'import json, sys; print(json.dumps({"request_id": sys.argv[2], "spec": json.load(open(sys.argv[1]))}, sort_keys=True))' "$spec_file" "$request_id")
event_id=$request_id/$(printf '%s' "$value" | sha256sum | cut -c1-16)

# One line: headers, tab, key, tab, value. A header's value may contain colons, but no comma or tab.
headers="content-type:application/json,ce_specversion:1.0,ce_id:$event_id,ce_source:/examples/console,ce_type:job.submit,ce_tenantid:$tenant"
printf '%s\t%s\t%s\n' "$headers" "$job_id" "$value" | "$here/kafka-tool" console-producer \
    --bootstrap-server "$servers" --producer.config "$config" --topic drivetrain.commands.jobs \
    --producer-property acks=all --property parse.headers=true --property parse.key=true
echo "sent $event_id; the job is $job_id"

# The reply names this event, as its cause (accepted) or as the refused command. The tool buffers its
# output until it exits, which happens after 10 s without a record.
reply=$("$here/kafka-tool" console-consumer \
    --bootstrap-server "$servers" --consumer.config "$config" --topic drivetrain.events.jobs \
    --from-beginning --timeout-ms 10000 --property print.headers=true --property print.key=true |
    job=$job_id event=$event_id awk -F '\t' '
        $2 != ENVIRON["job"] { next }
        index($1, "ce_causationid:" ENVIRON["event"]) { print; exit }
        index($3, "\"command_event_id\":\"" ENVIRON["event"] "\"") { print; exit }') || true
case $reply in
*ce_type:job.queued*) status=0 ;;
*ce_type:job_request.rejected*) status=1 ;;
*) echo "no reply; see 'If there is no reply' in docs/guides/submit-by-event.md" && exit 2 ;;
esac
printf '%s\n' "$reply" | cut -f1,3 | tr '\t' '\n'
exit "$status"
