// A work queue in Go: `go run . add 100` adds jobs, `go run . work` does jobs until none is left.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	nc, err := nats.Connect(cmp.Or(os.Getenv("NATS_URL"), nats.DefaultURL))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	switch {
	case len(args) == 2 && args[0] == "add":
		return add(js, args[1])
	case len(args) == 1 && args[0] == "work":
		return work(ctx, nc, js)
	}
	return errors.New("expected `add COUNT` or `work`")
}

func add(js jetstream.JetStream, count string) error {
	n, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	// No publish waits for another: the server syncs those together that arrive during a sync.
	added := make([]jetstream.PubAckFuture, n)
	for i := range added {
		if added[i], err = js.PublishAsync("jobs.go", fmt.Appendf(nil, "job %d", i)); err != nil {
			return err
		}
	}
	for _, job := range added {
		select {
		case <-job.Ok():
		case err := <-job.Err():
			return err
		}
	}
	fmt.Printf("go: %d jobs are synced\n", n)
	return printBatching()
}

func work(ctx context.Context, nc *nats.Conn, js jetstream.JetStream) error {
	// All workers, in every language, share this consumer: each job goes to one of them.
	workers, err := js.CreateOrUpdateConsumer(ctx, "JOBS", jetstream.ConsumerConfig{Durable: "workers", AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		return err
	}
	for done := 0; ; {
		jobs, err := workers.Fetch(16, jetstream.FetchMaxWait(time.Second))
		if err != nil {
			return err
		}
		before := done
		for job := range jobs.Messages() {
			fmt.Printf("go: %s %s\n", job.Subject(), job.Data())
			// The acknowledgement removes the job. If a crash loses it, the job comes again, to any worker.
			if err := job.Ack(); err != nil {
				return err
			}
			done++
		}
		if err := jobs.Error(); err != nil || done == before {
			fmt.Printf("go: %d jobs are done\n", done)
			// The acknowledgements leave before the program does.
			return errors.Join(err, nc.Flush())
		}
	}
}
