"""Kinds of a loop's events, as `python/src/events.rs` has them; each event is a tuple that begins with its kind."""

CALL = 0  # served, path, metadata, deadline_ns or None, session
UNARY = 1  # as CALL, with the only message behind: all of the request has come
MESSAGE = 2  # number, message
HALF_CLOSED = 3  # number
SENT = 4  # number
ENDED = 5  # number, code, trailers
HEADERS = 6  # number, metadata
CHANNEL = 7  # channel, state
ACCEPTED = 8  # session
ATTACHED = 9  # session
CLOSED = 10  # session, words
NOT_ATTACHED = 11  # session, words, is_final
REFUSED = 12  # words
