package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// writers act at a time; an odd one swaps a key that all odd ones share.
	writers = 8
	// attemptMax is longer than a server takes to give up by itself.
	attemptMax = 12 * time.Second
	// writePause keeps the history small.
	writePause = 4 * time.Millisecond
	// shared is the key that is swapped.
	shared = "w/shared"
)

// attempts says what came of each write, a line each, in the order in which it was known.
var attempts sync.Mutex

// writes writes until SIGTERM, each value once whatever comes of it, and then says what the
// history has: one line for each attempt, one for each event.
func writes(ctx context.Context, client *clientv3.Client) error {
	stopped, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	var acting sync.WaitGroup
	failed := make(chan error, writers)
	for writer := range writers {
		acting.Go(func() {
			for number := 0; stopped.Err() == nil; number++ {
				if err := write(ctx, client, writer, number); err != nil {
					failed <- err
					return
				}
				time.Sleep(writePause)
			}
		})
	}
	acting.Wait()
	close(failed)
	if err := <-failed; err != nil {
		return err
	}
	return history(ctx, client)
}

// write puts a key of its own and reads it back, or swaps the shared one.
func write(ctx context.Context, client *clientv3.Client, writer, number int) error {
	ctx, cancel := context.WithTimeout(ctx, attemptMax)
	defer cancel()
	value := fmt.Sprintf("%d/%d", writer, number)
	if writer%2 == 1 {
		return swap(ctx, client, value)
	}
	key := "w/" + value
	put, err := client.Put(ctx, key, value)
	if err != nil {
		return came("put", value, "unknown", err)
	}
	tell("put %s done %d", value, put.Header.Revision)
	found, err := client.Get(ctx, key)
	if err != nil {
		return came("get", value, "unknown", err)
	}
	if len(found.Kvs) != 1 || found.Kvs[0].ModRevision != put.Header.Revision {
		return fmt.Errorf("%s was acknowledged at %d and is read as %v", key, put.Header.Revision, found)
	}
	tell("get %s done %d", value, found.Header.Revision)
	return nil
}

// swap writes the shared key if it is what it was, and a key beside it in the same transaction.
func swap(ctx context.Context, client *clientv3.Client, value string) error {
	found, err := client.Get(ctx, shared)
	if err != nil {
		return came("get", value, "unknown", err)
	}
	expected := int64(0)
	if len(found.Kvs) == 1 {
		expected = found.Kvs[0].ModRevision
	}
	swapped, err := client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(shared), "=", expected)).
		Then(clientv3.OpPut(shared, value), clientv3.OpPut("w/"+value, value)).
		Commit()
	switch {
	case err != nil:
		return came("swap", value, "unknown", err)
	case swapped.Succeeded:
		tell("swap %s done %d", value, swapped.Header.Revision)
	default:
		tell("swap %s refused 0", value)
	}
	return nil
}

// came says that an attempt failed, and how: by an error of etcd's, or by the code of one that has
// none, as when a connection broke.
func came(kind, value, outcome string, err error) error {
	var known rpctypes.EtcdError
	if errors.As(rpctypes.Error(err), &known) {
		tell("%s %s %s 0 etcd %s", kind, value, outcome, known.Error())
		return nil
	}
	code := status.Code(err)
	if errors.Is(err, context.DeadlineExceeded) {
		code = codes.DeadlineExceeded
	}
	tell("%s %s %s 0 code %s %s", kind, value, outcome, code, strings.ReplaceAll(err.Error(), "\n", " "))
	return nil
}

// tell prints one line at a time.
func tell(format string, arguments ...any) {
	attempts.Lock()
	defer attempts.Unlock()
	fmt.Fprintf(os.Stdout, format+"\n", arguments...)
}

// history prints every event from the first revision to the newest.
func history(ctx context.Context, client *clientv3.Client) error {
	newest, err := client.Get(ctx, shared)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := client.Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(1))
	for seen := int64(0); seen < newest.Header.Revision; {
		answer, err := next(ctx, answers)
		if err != nil {
			return err
		}
		if answer.Err() != nil {
			return answer.Err()
		}
		for _, event := range answer.Events {
			tell("event %s %s %d %d", event.Kv.Key, event.Kv.Value, event.Kv.ModRevision, event.Kv.Version)
			seen = event.Kv.ModRevision
		}
	}
	tell("end")
	return nil
}
