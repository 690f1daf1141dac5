package main

import (
	"context"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// watch follows a small history live, from the past, filtered, compacted and from the future.
func watch(ctx context.Context, client *clientv3.Client) error {
	if err := live(ctx, client); err != nil {
		return err
	}
	if err := past(ctx, client); err != nil {
		return err
	}
	if err := fragments(ctx, client); err != nil {
		return err
	}
	if err := progress(ctx, client); err != nil {
		return err
	}
	return compacted(ctx, client)
}

func live(ctx context.Context, client *clientv3.Client) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	prefix := client.Watch(ctx, "a/", clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithCreatedNotify())
	answer, err := next(ctx, prefix)
	if err != nil {
		return err
	}
	describe("created", answer)
	one := client.Watch(ctx, "a/1", clientv3.WithCreatedNotify())
	if answer, err = next(ctx, one); err != nil {
		return err
	}
	describe("second on the stream", answer)
	deletes := client.Watch(ctx, "a/", clientv3.WithPrefix(), clientv3.WithFilterPut(), clientv3.WithCreatedNotify())
	if _, err = next(ctx, deletes); err != nil {
		return err
	}
	for i := 1; i <= 3; i++ {
		if _, err := client.Put(ctx, fmt.Sprintf("a/%d", i), "first"); err != nil {
			return err
		}
	}
	if _, err := client.Put(ctx, "b/1", "elsewhere"); err != nil {
		return err
	}
	transaction := client.Txn(ctx).
		If(clientv3.Compare(clientv3.Version("a/1"), "=", 1)).
		Then(clientv3.OpPut("a/1", "second"), clientv3.OpDelete("a/2"), clientv3.OpPut("a/4", "new"))
	if _, err := transaction.Commit(); err != nil {
		return err
	}
	if _, err := client.Delete(ctx, "a/", clientv3.WithPrefix()); err != nil {
		return err
	}
	if err := events(ctx, "prefix", prefix, 9); err != nil {
		return err
	}
	if err := events(ctx, "one key", one, 3); err != nil {
		return err
	}
	return events(ctx, "deletes only", deletes, 4)
}

func past(ctx context.Context, client *clientv3.Client) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	all := client.Watch(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithRev(1), clientv3.WithPrevKV())
	if err := events(ctx, "from revision 1", all, 10); err != nil {
		return err
	}
	later := client.Watch(ctx, "a/", clientv3.WithPrefix(), clientv3.WithRev(6), clientv3.WithFilterDelete())
	if err := events(ctx, "from revision 6, puts only", later, 2); err != nil {
		return err
	}
	future := client.Watch(ctx, "f", clientv3.WithRev(10), clientv3.WithCreatedNotify())
	answer, err := next(ctx, future)
	if err != nil {
		return err
	}
	describe("from the future", answer)
	for i := range 4 {
		if _, err := client.Put(ctx, "f", fmt.Sprint(i)); err != nil {
			return err
		}
	}
	return events(ctx, "from the future", future, 2)
}

// fragments reads more than fits into one message, from the past.
func fragments(ctx context.Context, client *clientv3.Client) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	first := int64(0)
	for i := range 8 {
		value := strings.Repeat(fmt.Sprint(i), 1<<20)
		put, err := client.Put(ctx, fmt.Sprintf("big/%d", i), value)
		if err != nil {
			return err
		}
		if i == 0 {
			first = put.Header.Revision
		}
	}
	answers := client.Watch(ctx, "big/", clientv3.WithPrefix(), clientv3.WithFragment(), clientv3.WithRev(first))
	for seen := 0; seen < 8; {
		answer, err := next(ctx, answers)
		if err != nil {
			return err
		}
		for _, event := range answer.Events {
			say("large: %q %d bytes mod=%d", event.Kv.Key, len(event.Kv.Value), event.Kv.ModRevision)
		}
		seen += len(answer.Events)
	}
	return nil
}

func progress(ctx context.Context, client *clientv3.Client) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := client.Watch(ctx, "nothing", clientv3.WithCreatedNotify())
	if _, err := next(ctx, answers); err != nil {
		return err
	}
	if err := client.RequestProgress(ctx); err != nil {
		return err
	}
	answer, err := next(ctx, answers)
	if err != nil {
		return err
	}
	describe("progress", answer)
	return nil
}

func compacted(ctx context.Context, client *clientv3.Client) error {
	if _, err := client.Compact(ctx, 8, clientv3.WithCompactPhysical()); err != nil {
		return err
	}
	for _, revision := range []int64{1, 7, 8} {
		ctx, cancel := context.WithCancel(ctx)
		answers := client.Watch(ctx, "a/", clientv3.WithPrefix(), clientv3.WithRev(revision), clientv3.WithCreatedNotify())
		for range 2 {
			answer, err := next(ctx, answers)
			if err != nil {
				cancel()
				return err
			}
			describe(fmt.Sprintf("from %d after compaction at 8", revision), answer)
			if answer.Canceled || len(answer.Events) > 0 || revision >= 8 {
				break
			}
		}
		cancel()
	}
	return nil
}
