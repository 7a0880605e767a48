// Submit a job by event from Go, and print the reply.
//
//	go run . ../job.json nightly-2026-01-31
//
// The connection comes from $DRIVETRAIN_HOME/connection.json (default ~/.drivetrain). Exit code 0:
// the job was queued; 1: it was refused; 2: no reply within 30 s, or another error.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
)

const tenant = "default"

type request struct {
	RequestID string          `json:"request_id"`
	Spec      json.RawMessage `json:"spec"`
}

func main() {
	if len(os.Args) != 3 {
		exit(errors.New("usage: go run . JOB.json REQUEST_ID"))
	}
	spec, err := os.ReadFile(os.Args[1])
	if err != nil {
		exit(err)
	}
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	jobID, eventID, err := submit(ctx, os.Args[2], spec)
	if err != nil {
		exit(err)
	}
	fmt.Printf("sent %s; the job is %s\n", eventID, jobID)
	kind, reply, err := waitForReply(ctx, jobID, eventID)
	if err != nil {
		exit(fmt.Errorf("no reply; see 'If there is no reply' in docs/guides/submit-by-event.md: %w", err))
	}
	var indented bytes.Buffer
	_ = json.Indent(&indented, reply, "", "  ")
	fmt.Println(kind, indented.String())
	if kind != "job.queued" {
		os.Exit(1)
	}
}

// submit sends the command. Job id and event id are derived from the request, so sending can be repeated.
func submit(ctx context.Context, requestID string, spec []byte) (jobID, eventID string, err error) {
	value, err := json.Marshal(request{requestID, spec})
	if err != nil {
		return "", "", err
	}
	jobID = jobIDOf(tenant, requestID)
	eventID = fmt.Sprintf("%s/%x", requestID, sha256.Sum256(value))[:len(requestID)+17]
	client, err := connect()
	if err != nil {
		return "", "", err
	}
	defer client.Close()
	record := &kgo.Record{Topic: "drivetrain.commands.jobs", Key: []byte(jobID), Value: value}
	for _, attribute := range [][2]string{
		{"content-type", "application/json"},
		{"ce_specversion", "1.0"},
		{"ce_id", eventID},
		{"ce_source", "/examples/go"},
		{"ce_type", "job.submit"},
		{"ce_time", time.Now().UTC().Format(time.RFC3339Nano)},
		{"ce_tenantid", tenant},
	} {
		record.Headers = append(record.Headers,
			kgo.RecordHeader{Key: attribute[0], Value: []byte(attribute[1])})
	}
	return jobID, eventID, client.ProduceSync(ctx, record).FirstErr()
}

// waitForReply returns the scheduler's reply to this event. It is kept forever, so it can be read at
// any later time.
func waitForReply(ctx context.Context, jobID, eventID string) (kind string, reply []byte, err error) {
	client, err := connect(kgo.ConsumeTopics("drivetrain.events.jobs"))
	if err != nil {
		return "", nil, err
	}
	defer client.Close()
	for {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return "", nil, err
		}
		for _, record := range fetches.Records() {
			kind, cause := header(record, "ce_type"), header(record, "ce_causationid")
			if string(record.Key) != jobID {
				continue
			}
			var refused struct {
				CommandEventID string `json:"command_event_id"`
			}
			_ = json.Unmarshal(record.Value, &refused)
			if kind == "job.queued" && cause == eventID ||
				kind == "job_request.rejected" && refused.CommandEventID == eventID {
				return kind, record.Value, nil
			}
		}
	}
}

// jobIDOf is job_ and the first 26 base32 characters of SHA-256(tenant, NUL, request id).
func jobIDOf(tenant, requestID string) string {
	digest := sha256.Sum256([]byte(tenant + "\x00" + requestID))
	return "job_" + strings.ToLower(base32.StdEncoding.EncodeToString(digest[:]))[:26]
}

// connect reads connection.json. The default partitioner hashes keys as Java's clients do.
func connect(more ...kgo.Opt) (*kgo.Client, error) {
	home := os.Getenv("DRIVETRAIN_HOME")
	if home == "" {
		user, err := os.UserHomeDir()
		if err != nil {
			return nil, err
		}
		home = filepath.Join(user, ".drivetrain")
	}
	text, err := os.ReadFile(filepath.Join(home, "connection.json"))
	if err != nil {
		return nil, err
	}
	var connection struct {
		Kafka struct {
			BootstrapServers string `json:"bootstrap_servers"`
			Username         string `json:"username"`
			Password         string `json:"password"`
		} `json:"kafka"`
	}
	if err := json.Unmarshal(text, &connection); err != nil {
		return nil, err
	}
	kafka := connection.Kafka
	return kgo.NewClient(append(more,
		kgo.SeedBrokers(strings.Split(kafka.BootstrapServers, ",")...),
		kgo.SASL(plain.Auth{User: kafka.Username, Pass: kafka.Password}.AsMechanism()))...)
}

func header(record *kgo.Record, name string) string {
	for _, each := range record.Headers {
		if each.Key == name {
			return string(each.Value)
		}
	}
	return ""
}

func exit(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(2)
}
