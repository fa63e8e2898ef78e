"""Call credentials: what their plugins add to a call's metadata."""

import threading

import grpc


class CredentialsError(Exception):
    """A plugin has failed: the call ends with this code and message."""

    def __init__(self, code, details):
        super().__init__(details)
        self.code, self.details = code, details


def _plugins(credentials):
    inner = getattr(credentials, "_credentials", credentials)
    if hasattr(inner, "_call_credentialses"):
        return [plugin for each in inner._call_credentialses for plugin in _plugins(each)]
    if hasattr(inner, "_metadata_plugin"):
        return [inner._metadata_plugin]
    raise CredentialsError(grpc.StatusCode.INTERNAL, f"call credentials of {type(inner).__name__} have no metadata plugin")


def service_url(path):
    """What a plugin is told of where the call goes: a session is local, and its peer is known by the kernel."""
    return "https://localhost" + path.rpartition("/")[0]


def pairs_of(credentials, path, timeout):
    """The pairs that credentials add; waits for plugins that answer from another thread, for so many seconds."""
    pairs = []
    method = path.rpartition("/")[2]
    for plugin in _plugins(credentials):
        answered, answer = threading.Event(), []

        def called(metadata, code, details, answered=answered, answer=answer):
            answer.append((metadata, code, details))
            answered.set()

        plugin(service_url(path), method, called)
        if not answered.wait(timeout):
            raise CredentialsError(grpc.StatusCode.DEADLINE_EXCEEDED, "the deadline has passed while call credentials were fetched")
        metadata, _, details = answer[0]
        if metadata is None:
            words = details.decode(errors="replace") if isinstance(details, bytes) else str(details)
            raise CredentialsError(grpc.StatusCode.UNAVAILABLE, f"call credentials failed: {words}")
        pairs.extend(metadata)
    return pairs
