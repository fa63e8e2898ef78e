// Command tollfree-vectors answers the questions of spec/runner.md about the protocol over shared memory: it asks what the
// product is made of. What it does not know of (gateways) it calls not implemented.
package main

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
)

// A question is one line of the runner's.
type question map[string]json.RawMessage

// fields are those of an answer.
type fields map[string]any

// errMissing is for a topic, or a part of one, that this implementation has not.
var errMissing = errors.New("not implemented")

var topics = map[string]func(question) (fields, error){
	"handshake":              handshake,
	"refused-by-server":      refusedByServer,
	"violation-to-server":    violationToServer,
	"violation-to-client":    violationToClient,
	"conversation-to-server": conversationToServer,
	"conversation-to-client": conversationToClient,
	"ring":                   ringSteps,
	"ring-head":              ringHead,
	"ring-cursor":            ringCursor,
	"waiting":                waitingSteps,
	"load":                   load,
	"table":                  table,
	"fingerprint":            fingerprint,
	"describe":               describe,
	"decode":                 decode,
	"verify":                 verify,
	"device":                 devices,
	"extent":                 extent,
	"ref":                    ref,
	"ref-tag":                refTag,
	"take":                   take,
	"pool-member":            poolMember,
	"pool-words":             poolWords,
	"pool-message":           poolMessage,
}

func main() {
	if err := answer(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "tollfree-vectors:", err)
		os.Exit(1)
	}
}

func answer(in *os.File, out *os.File) error {
	lines := bufio.NewReaderSize(in, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) == 0 {
			return nil
		}
		var q question
		if err := json.Unmarshal(line, &q); err != nil {
			return fmt.Errorf("a question that is no JSON object: %w", err)
		}
		reply := ask(q)
		reply["id"] = q["id"]
		bytes, err2 := json.Marshal(reply)
		if err2 != nil {
			return err2
		}
		if _, err := out.Write(append(bytes, '\n')); err != nil {
			return err
		}
		if err != nil {
			return nil
		}
	}
}

func ask(q question) fields {
	var name string
	topic, known := topics[name], false
	if json.Unmarshal(q["topic"], &name) == nil {
		topic, known = topics[name]
	}
	if !known {
		return fields{"not_implemented": true}
	}
	reply, err := topic(q)
	switch {
	case errors.Is(err, errMissing):
		return fields{"not_implemented": true}
	case err != nil:
		return fields{"refused": err.Error()}
	}
	return reply
}

func (q question) get(name string, value any) error {
	if err := json.Unmarshal(q[name], value); err != nil {
		return fmt.Errorf("the field %q: %w", name, err)
	}
	return nil
}

func (q question) number(name string) (n uint64, err error) {
	err = q.get(name, &n)
	return n, err
}

func (q question) bytes(name string) ([]byte, error) {
	var text string
	if err := q.get(name, &text); err != nil {
		return nil, err
	}
	return hex.DecodeString(text)
}

func (q question) list(name string) (list [][]byte, err error) {
	var texts []string
	if err := q.get(name, &texts); err != nil {
		return nil, err
	}
	for _, text := range texts {
		bytes, err := hex.DecodeString(text)
		if err != nil {
			return nil, err
		}
		list = append(list, bytes)
	}
	return list, nil
}
