package main

import (
	"encoding/hex"
	"fmt"

	"github.com/tollfree/tollfree/go/flat"
)

func tableOf(q question) (*flat.Table, error) {
	blob, err := q.bytes("table")
	if err != nil {
		return nil, err
	}
	return flat.LoadTable(blob)
}

func typeOf(q question) (y flat.Type, err error) {
	table, err := tableOf(q)
	if err != nil {
		return y, err
	}
	var name string
	if err := q.get("type", &name); err != nil {
		return y, err
	}
	y, ok := table.Type(name)
	if !ok {
		return y, fmt.Errorf("the table has no type %q", name)
	}
	return y, nil
}

func table(q question) (fields, error) {
	t, err := tableOf(q)
	if err != nil {
		return nil, err
	}
	return fields{"fingerprint": wide(t.Fingerprint()), "types": t.Types(), "fields": t.Fields()}, nil
}

func fingerprint(q question) (fields, error) {
	y, err := typeOf(q)
	if err != nil {
		return nil, err
	}
	return fields{"fingerprint": wide(y.Fingerprint())}, nil
}

func describe(q question) (fields, error) {
	bytes, err := q.bytes("description")
	if err != nil {
		return nil, err
	}
	d, err := flat.ReadDescription(bytes)
	if err != nil {
		return nil, err
	}
	return fields{
		"request": d.Request.Name(), "reply": d.Reply.Name(), "accepts": d.Accepts, "sends": d.Sends,
		"fingerprint": wide(flat.MethodFingerprint(d.Request, d.Reply)),
	}, nil
}

func decode(q question) (fields, error) {
	y, err := typeOf(q)
	if err != nil {
		return nil, err
	}
	message, err := q.bytes("message")
	if err != nil {
		return nil, err
	}
	object, err := y.Decode(message, 1<<30)
	if err != nil {
		return nil, err
	}
	return fields{"object": hex.EncodeToString(object.Bytes())}, nil
}

func verify(q question) (fields, error) {
	y, err := typeOf(q)
	if err != nil {
		return nil, err
	}
	bytes, err := q.bytes("object")
	if err != nil {
		return nil, err
	}
	object, err := y.Verify(bytes)
	if err != nil {
		return nil, err
	}
	message, err := object.Protobuf()
	if err != nil {
		return nil, err
	}
	return fields{"message": hex.EncodeToString(message)}, nil
}
