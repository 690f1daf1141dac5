// Command goclient runs fixed scenarios with etcd's Go client library against a cluster's endpoints
// and prints what the client saw, one line each. The same scenario against two servers that have
// had no other traffic must print the same lines; all but writes, which has faults for company.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// callMax bounds every scenario: none waits for longer than this; and writesMax that one.
const (
	callMax   = 60 * time.Second
	writesMax = 3 * time.Hour
)

var scenarios = map[string]func(context.Context, *clientv3.Client) error{
	"watch":       watch,
	"lease":       lease,
	"concurrency": locks,
	"writes":      writes,
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 || scenarios[os.Args[1]] == nil {
		log.Fatal("usage: goclient watch|lease|concurrency|writes ENDPOINT,...")
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   strings.Split(os.Args[2], ","),
		DialTimeout: 10 * time.Second,
		Logger:      zap.NewNop(),
	})
	if err != nil {
		log.Fatal(err)
	}
	longest := callMax
	if os.Args[1] == "writes" {
		longest = writesMax
	}
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	if err := scenarios[os.Args[1]](ctx, client); err != nil {
		log.Fatalf("%s: %v", os.Args[1], err)
	}
	if err := client.Close(); err != nil {
		log.Fatal(err)
	}
}

// say prints one observation.
func say(format string, arguments ...any) {
	fmt.Printf(format+"\n", arguments...)
}

// describe prints every field of a watch answer that two servers must agree on.
func describe(name string, answer clientv3.WatchResponse) {
	say("%s: created=%v canceled=%v compact=%d revision=%d progress=%v err=%v", name, answer.Created,
		answer.Canceled, answer.CompactRevision, answer.Header.Revision, answer.IsProgressNotify(),
		answer.Err())
	for _, event := range answer.Events {
		describeEvent(name, event)
	}
}

func describeEvent(name string, event *clientv3.Event) {
	line := fmt.Sprintf("%s: %s %q=%q create=%d mod=%d version=%d lease=%v", name, event.Type,
		event.Kv.Key, event.Kv.Value, event.Kv.CreateRevision, event.Kv.ModRevision,
		event.Kv.Version, event.Kv.Lease != 0)
	if event.PrevKv != nil {
		line += fmt.Sprintf(" previous=%q@%d", event.PrevKv.Value, event.PrevKv.ModRevision)
	}
	say("%s", line)
}

// next waits for one answer of a watch.
func next(ctx context.Context, answers clientv3.WatchChan) (clientv3.WatchResponse, error) {
	select {
	case answer, isOpen := <-answers:
		if !isOpen {
			return answer, fmt.Errorf("the watch was closed")
		}
		return answer, nil
	case <-ctx.Done():
		return clientv3.WatchResponse{}, ctx.Err()
	}
}

// events reads answers until count events came, and prints each. In how many answers they come is
// up to the server.
func events(ctx context.Context, name string, answers clientv3.WatchChan, count int) error {
	for seen := 0; seen < count; {
		answer, err := next(ctx, answers)
		if err != nil {
			return fmt.Errorf("%s after %d events: %w", name, seen, err)
		}
		if answer.Err() != nil {
			return fmt.Errorf("%s: %w", name, answer.Err())
		}
		for _, event := range answer.Events {
			describeEvent(name, event)
		}
		seen += len(answer.Events)
	}
	return nil
}
