"""Options of channels and servers by grpcio's names, and gRPC's service config."""

import json
import logging
import re
import urllib.parse

import grpc

from tollfree import _native

_LOGGER = logging.getLogger("tollfree")

# The longest message that is taken by default, in bytes.
RECEIVE_LEN_MAX = 4 << 20

# grpcio's options that say something about HTTP/2, TCP or its own engine: nothing here has what they are about.
_WITHOUT_MEANING = (
    "grpc.keepalive_",
    "grpc.http2.",
    "grpc.max_pings_without_data",
    "grpc.so_reuseport",
    "grpc.use_local_subchannel_pool",
    "grpc.optimization_target",
    "grpc.enable_http_proxy",
    "grpc.dns_",
    "grpc.tcp_",
    "grpc.experimental.",
    "grpc.client_idle_timeout_ms",
    "grpc.min_reconnect_backoff_ms",
    "grpc.max_reconnect_backoff_ms",
    "grpc.initial_reconnect_backoff_ms",
    "grpc.default_authority",
    "grpc.ssl_target_name_override",
    "grpc.per_rpc_retry_buffer_size",
    "grpc.server_handshake_timeout_ms",
    "grpc.enable_channelz",
    "grpc.disable_client_authority_filter",
    "grpc.lb_policy_name",
)
_KNOWN = {
    "channel": {
        "grpc.max_receive_message_length",
        "grpc.max_send_message_length",
        "grpc.max_metadata_size",
        "grpc.primary_user_agent",
        "grpc.secondary_user_agent",
        "grpc.service_config",
        "grpc.enable_retries",
        "grpc.default_compression_algorithm",
    },
    "server": {
        "grpc.max_receive_message_length",
        "grpc.max_send_message_length",
        "grpc.max_metadata_size",
        "grpc.max_concurrent_streams",
        "grpc.default_compression_algorithm",
    },
}


class Options:
    """Options that were given, checked; a name that says nothing here is warned of once."""

    def __init__(self, options, side):
        self._values = {}
        for name, value in options or ():
            if isinstance(name, bytes):
                name = name.decode()
            if name in _KNOWN[side]:
                self._values[name] = value
            elif name.startswith(_WITHOUT_MEANING):
                _LOGGER.info("option %s is about sockets, and says nothing over shared memory", name)
            else:
                _LOGGER.warning("option %s of a %s is not known, and is not used", name, side)

    def length(self, name, default):
        """A limit in bytes; None: there is none. grpcio has -1 for that."""
        value = self._values.get(name, default)
        return None if value is None or value < 0 else value

    def text(self, name):
        value = self._values.get(name)
        return value.decode() if isinstance(value, bytes) else value

    def number(self, name):
        return self._values.get(name)

    def are_retries_on(self):
        return bool(self._values.get("grpc.enable_retries", 1))

    def compression(self, default):
        number = self._values.get("grpc.default_compression_algorithm")
        return grpc.Compression(number) if number else default


def targets_of(target):
    """Addresses of a channel's target: one, or several with commas between."""
    addresses = []
    for part in target.split(","):
        part = part.strip()
        scheme = urllib.parse.urlsplit(part).scheme
        if scheme not in ("shm", "shm-abstract"):
            raise ValueError(
                f"target {part!r}: Tollfree has shm:///path and shm-abstract:name; "
                f"for {scheme or 'a host and port'} use grpc.insecure_channel"
            )
        addresses.append((part, 1, 0))
    return addresses


class MethodTerms:
    """What a service config says of a method."""

    def __init__(self, timeout=None, waits_for_ready=False, retry=None, send_len_max=None, receive_len_max=None):
        self.timeout = timeout
        self.waits_for_ready = waits_for_ready
        self.retry = retry
        self.send_len_max = send_len_max
        self.receive_len_max = receive_len_max


class ServiceConfig:
    """gRPC's service config, of its JSON. What is wrong in it raises ValueError, with the name of the field."""

    def __init__(self, text, are_retries_on=True):
        self.policy = "pick_first"
        self.throttling = None
        self.health_service = None
        self._terms = {}
        self._are_retries_on = are_retries_on
        if not text:
            return
        try:
            config = json.loads(text)
        except ValueError as error:
            raise ValueError(f"grpc.service_config is no JSON: {error}") from None
        if not isinstance(config, dict):
            raise ValueError("grpc.service_config has to be an object")
        health = config.get("healthCheckConfig") or {}
        if not isinstance(health, dict) or not isinstance(health.get("serviceName", ""), str):
            raise ValueError('healthCheckConfig has to be an object, with the name of a service as its "serviceName"')
        # Without a name, nothing is asked for, as in gRPC.
        self.health_service = health.get("serviceName")
        self._balance(config)
        if "retryThrottling" in config:
            throttling = config["retryThrottling"]
            tokens, ratio = throttling.get("maxTokens", 0), throttling.get("tokenRatio", 0)
            if not 0 < tokens <= 1000 or ratio <= 0:
                raise ValueError("retryThrottling: maxTokens has to be from 1 to 1000, and tokenRatio above 0")
            self.throttling = (int(tokens * 1000), int(ratio * 1000))
        for entry in config.get("methodConfig", ()):
            self._method(entry)

    def of_channel(self):
        """What it says of a channel as a whole."""
        return self.policy, self.throttling, self.health_service

    def _balance(self, config):
        for entry in config.get("loadBalancingConfig", ()):
            (name,) = entry
            known = {"pick_first": "pick_first", "round_robin": "round_robin", "least_request_experimental": "least_request"}
            if name in known:
                self.policy = known[name]
                return
        if config.get("loadBalancingConfig"):
            raise ValueError("loadBalancingConfig has no policy that is known: pick_first, round_robin, least_request_experimental")
        name = config.get("loadBalancingPolicy", "pick_first").lower()
        if name not in ("pick_first", "round_robin"):
            raise ValueError(f"loadBalancingPolicy {name!r}: pick_first and round_robin are possible")
        self.policy = name

    def _method(self, entry):
        retry = None
        if "hedgingPolicy" in entry:
            raise ValueError("hedgingPolicy is not served: use retryPolicy")
        if "retryPolicy" in entry and self._are_retries_on:
            retry = _retry(entry["retryPolicy"])
        terms = MethodTerms(
            _seconds("timeout", entry["timeout"]) if "timeout" in entry else None,
            bool(entry.get("waitForReady", False)),
            retry,
            entry.get("maxRequestMessageBytes"),
            entry.get("maxResponseMessageBytes"),
        )
        for name in entry.get("name", ()):
            self._terms[(name.get("service", ""), name.get("method", ""))] = terms

    def terms(self, path):
        """What it says of a method, by its path."""
        service, _, method = path.strip("/").rpartition("/")
        for key in ((service, method), (service, ""), ("", "")):
            if key in self._terms:
                return self._terms[key]
        return MethodTerms()


def _seconds(field, text):
    if not isinstance(text, str) or not re.fullmatch(r"\d+(\.\d{1,9})?s", text):
        raise ValueError(f"{field} {text!r}: seconds such as 0.5s are possible")
    return float(text[:-1])


def _retry(policy):
    attempts = policy.get("maxAttempts", 0)
    if not isinstance(attempts, int) or attempts < 2:
        raise ValueError("retryPolicy: maxAttempts has to be 2 or more, since the first attempt counts")
    multiplier = policy.get("backoffMultiplier", 0)
    if not multiplier > 0:
        raise ValueError("retryPolicy: backoffMultiplier has to be above 0")
    pauses = [_seconds(field, policy.get(field)) for field in ("initialBackoff", "maxBackoff")]
    if min(pauses) <= 0:
        raise ValueError("retryPolicy: initialBackoff and maxBackoff have to be above 0")
    codes = []
    for code in policy.get("retryableStatusCodes", ()):
        try:
            codes.append(grpc.StatusCode[code].value[0] if isinstance(code, str) else int(code))
        except KeyError:
            raise ValueError(f"retryPolicy: {code!r} is no status code") from None
    if not codes:
        raise ValueError("retryPolicy: retryableStatusCodes has to name a code at least")
    return _native.Retry(min(attempts, 5), *pauses, multiplier, codes)
