// Command checker reads a history, one JSON operation a line, and searches for one order of all of
// them that explains every answer, revisions included. It prints ok, illegal or unknown.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"log"
	"math"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

// searchMax bounds the search; past it there is no verdict.
const searchMax = 60 * time.Second

// keysMax bounds the keys of a history: the state is copied at every step.
const keysMax = 16

type operation struct {
	Client   int    `json:"client"`
	Start    int64  `json:"start"`
	End      int64  `json:"end"`
	Kind     string `json:"kind"`
	Key      int    `json:"key"`
	Other    int    `json:"other"`
	Value    uint64 `json:"value"`
	Expected int64  `json:"expected"`

	Known         bool   `json:"known"`
	Revision      int64  `json:"revision"`
	Written       bool   `json:"written"`
	ShownValue    uint64 `json:"shownValue"`
	ShownModified int64  `json:"shownModified"`
}

type item struct {
	value    uint64
	modified int64
}

// store is the whole state; a key that was never modified or was removed is the zero item.
type store struct {
	revision int64
	items    [keysMax]item
}

// step runs one call on a state. An operation whose outcome is unknown fits any answer: one that
// never took effect stands after all others, where nobody sees it.
func step(state store, call operation) (bool, store) {
	before := state.items[call.Key]
	read := func() bool {
		return call.Revision == state.revision && call.ShownValue == before.value &&
			call.ShownModified == before.modified
	}
	writes := true
	switch call.Kind {
	case "get":
		return !call.Known || read(), state
	case "delete":
		writes = before.modified != 0
	case "swap":
		writes = before.modified == call.Expected
	}
	if !writes {
		fits := call.Revision == state.revision && !call.Written
		if call.Kind == "swap" {
			fits = fits && read()
		}
		return !call.Known || fits, state
	}
	state.revision++
	after := item{call.Value, state.revision}
	if call.Kind == "delete" {
		after = item{}
	}
	state.items[call.Key] = after
	if call.Kind == "both" {
		state.items[call.Other] = after
	}
	return !call.Known || (call.Written && call.Revision == state.revision), state
}

func model(base int64) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return store{revision: base} },
		Step: func(state, input, _ any) (bool, any) {
			return step(state.(store), input.(operation))
		},
		Hash: func(state any) uint64 {
			hash := fnv.New64a()
			fmt.Fprintf(hash, "%v", state)
			return hash.Sum64()
		},
	}
}

func main() {
	log.SetFlags(0)
	input := bufio.NewScanner(os.Stdin)
	if !input.Scan() {
		log.Fatal("the first line must say the base revision")
	}
	var head struct {
		Base int64 `json:"base"`
	}
	if err := json.Unmarshal(input.Bytes(), &head); err != nil {
		log.Fatalf("line 1: %v", err)
	}
	var history []porcupine.Operation
	for input.Scan() {
		var call operation
		if err := json.Unmarshal(input.Bytes(), &call); err != nil {
			log.Fatalf("line %d: %v", len(history)+2, err)
		}
		if call.Key >= keysMax || call.Other >= keysMax {
			log.Fatalf("line %d: at most %d keys", len(history)+2, keysMax)
		}
		end := call.End
		if !call.Known {
			end = math.MaxInt64
		}
		history = append(history, porcupine.Operation{
			ClientId: call.Client, Input: call, Call: call.Start, Return: end,
		})
	}
	if err := input.Err(); err != nil {
		log.Fatal(err)
	}
	switch porcupine.CheckOperationsTimeout(model(head.Base), history, searchMax) {
	case porcupine.Ok:
		fmt.Println("ok")
	case porcupine.Illegal:
		fmt.Println("illegal")
	default:
		fmt.Println("unknown")
	}
}
