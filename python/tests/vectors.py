"""Answers the questions of `tollfree-vectors` (`spec/runner.md`) by what the package has: tables and flat messages."""

import json
import sys

from tollfree import flat


def table(question):
    loaded = _table(question)
    fields = [f"{number} {name}" for each in loaded.types for number, name in loaded.fields(each)]
    return {"fingerprint": _wide(loaded.fingerprint()), "types": loaded.types, "fields": fields}


def fingerprint(question):
    return {"fingerprint": _wide(_table(question).fingerprint(question["type"]))}


def decode(question):
    record = _table(question).decode(question["type"], bytes.fromhex(question["message"]))
    return {"object": bytes(record.flat()).hex()}


def verify(question):
    record = _table(question).verify(question["type"], bytes.fromhex(question["object"]))
    return {"message": record.SerializeToString().hex()}


def _table(question):
    return flat.Table.load(bytes.fromhex(question["table"]))


def _wide(number):
    return f"{number:016x}"


TOPICS = {"table": table, "fingerprint": fingerprint, "decode": decode, "verify": verify}


def main():
    for line in sys.stdin:
        question = json.loads(line)
        topic = TOPICS.get(question["topic"])
        try:
            answer = {"not_implemented": True} if topic is None else topic(question)
        except (KeyError, ValueError) as error:
            answer = {"refused": str(error)}
        print(json.dumps({"id": question["id"], **answer}), flush=True)


if __name__ == "__main__":
    main()
