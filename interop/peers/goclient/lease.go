package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// lease keeps a lease alive for longer than its time, lets another one expire, and asks for
// leases that do not exist.
func lease(ctx context.Context, client *clientv3.Client) error {
	if err := kept(ctx, client); err != nil {
		return err
	}
	if err := expired(ctx, client); err != nil {
		return err
	}
	return unknown(ctx, client)
}

func kept(ctx context.Context, client *clientv3.Client) error {
	granted, err := client.Grant(ctx, 2)
	if err != nil {
		return err
	}
	say("granted %d s", granted.TTL)
	for _, key := range []string{"l/2", "l/1"} {
		if _, err := client.Put(ctx, key, "x", clientv3.WithLease(granted.ID)); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	alive, err := client.KeepAlive(ctx, granted.ID)
	if err != nil {
		return err
	}
	// Twice the time to live: without the keep-alive the keys would be gone.
	end := time.After(4 * time.Second)
	for isOver := false; !isOver; {
		select {
		case answer, isOpen := <-alive:
			if !isOpen || answer.TTL != 2 || answer.ID != granted.ID {
				return fmt.Errorf("keep-alive answered %v", answer)
			}
		case <-end:
			isOver = true
		}
	}
	left, err := client.TimeToLive(ctx, granted.ID, clientv3.WithAttachedKeys())
	if err != nil {
		return err
	}
	// The order of the keys is not promised.
	slices.SortFunc(left.Keys, bytes.Compare)
	say("kept: granted=%d is_left=%v keys=%q", left.GrantedTTL, left.TTL > 0, left.Keys)
	all, err := client.Leases(ctx)
	if err != nil {
		return err
	}
	say("leases: %d", len(all.Leases))
	if _, err := client.Revoke(ctx, granted.ID); err != nil {
		return err
	}
	found, err := client.Get(ctx, "l/", clientv3.WithPrefix())
	if err != nil {
		return err
	}
	say("after the revocation: %d keys, revision %d", found.Count, found.Header.Revision)
	return nil
}

func expired(ctx context.Context, client *clientv3.Client) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// From before the grant: on a busy machine the puts below take their time, too.
	start := time.Now()
	granted, err := client.Grant(ctx, 1)
	if err != nil {
		return err
	}
	answers := client.Watch(ctx, "e/", clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithCreatedNotify())
	if _, err := next(ctx, answers); err != nil {
		return err
	}
	for _, key := range []string{"e/1", "e/2", "e/3"} {
		if _, err := client.Put(ctx, key, "x", clientv3.WithLease(granted.ID)); err != nil {
			return err
		}
	}
	if err := events(ctx, "expiry", answers, 6); err != nil {
		return err
	}
	took := time.Since(start)
	say("expired in time: %v", took > time.Second && took < 20*time.Second)
	left, err := client.TimeToLive(ctx, granted.ID)
	if err != nil {
		return err
	}
	say("after expiry: ttl=%d granted=%d", left.TTL, left.GrantedTTL)
	return nil
}

func unknown(ctx context.Context, client *clientv3.Client) error {
	_, err := client.KeepAliveOnce(ctx, 12345)
	say("keep-alive of no lease: %v", err)
	_, err = client.Revoke(ctx, 12345)
	say("revocation of no lease: %v", err)
	_, err = client.Put(ctx, "x", "y", clientv3.WithLease(12345))
	say("put with no lease: %v", err)
	_, err = client.Grant(ctx, 9_000_000_001)
	say("too long: %v", err)
	return nil
}

// locks runs the client library's own recipes: a session, a mutex and an election.
func locks(ctx context.Context, client *clientv3.Client) error {
	first, err := concurrency.NewSession(client, concurrency.WithTTL(5))
	if err != nil {
		return err
	}
	second, err := concurrency.NewSession(client, concurrency.WithTTL(5))
	if err != nil {
		return err
	}
	held := concurrency.NewMutex(first, "/lock")
	if err := held.Lock(ctx); err != nil {
		return err
	}
	waiting := concurrency.NewMutex(second, "/lock")
	say("try while held: %v", waiting.TryLock(ctx))
	got := make(chan error, 1)
	go func() { got <- waiting.Lock(ctx) }()
	if err := held.Unlock(ctx); err != nil {
		return err
	}
	if err := <-got; err != nil {
		return err
	}
	say("the lock went over: %v", waiting.Header().Revision > 0)
	leader := concurrency.NewElection(first, "/election")
	if err := leader.Campaign(ctx, "one"); err != nil {
		return err
	}
	follower := concurrency.NewElection(second, "/election")
	go func() { got <- follower.Campaign(ctx, "two") }()
	seen, err := leader.Leader(ctx)
	if err != nil {
		return err
	}
	say("leader: %s", seen.Kvs[0].Value)
	// Ending the session revokes its lease, which hands leadership over.
	if err := first.Close(); err != nil {
		return err
	}
	if err := <-got; err != nil {
		return err
	}
	seen, err = follower.Leader(ctx)
	if err != nil {
		return err
	}
	say("then: %s", seen.Kvs[0].Value)
	return second.Close()
}
