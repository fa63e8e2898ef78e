//! The sides: how a payload gets from one process to the next.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How a payload gets from one process to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// By value, over a Unix socket: stock tonic and its own stubs.
    Tonic,
    /// By value, through shared memory: Tollfree's stubs, and no pool.
    Inline,
    /// By ref: Tollfree's stubs and a pool. Who writes copies the pages that it touches.
    Ref,
    /// By ref, and a service that passes a payload on makes a copy of all of it first.
    RefCopy,
    /// By value, by way of a gateway: it speaks HTTP/2 to the load generator, and services attach to it.
    Gateway,
    /// The same, with handlers that take objects: what they say to each other is neither decoded nor encoded.
    GatewayObjects,
    /// As the gateway's, with the services on other hosts as far as they can tell: they reach it by TCP with TLS.
    GatewayStream,
}

impl Side {
    /// All of them, in the order in which they are measured and shown.
    pub const ALL: &[Self] = &[
        Self::Tonic,
        Self::Inline,
        Self::Ref,
        Self::RefCopy,
        Self::Gateway,
        Self::GatewayObjects,
        Self::GatewayStream,
    ];

    /// Those with a gateway.
    pub(crate) const BY_GATEWAY: &[Self] = &[Self::Gateway, Self::GatewayObjects, Self::GatewayStream];

    /// Those without a process of infrastructure between the services.
    pub(crate) const BETWEEN_PROCESSES: &[Self] = &[Self::Tonic, Self::Inline, Self::Ref, Self::RefCopy];

    /// The one spelling of this side.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tonic => "tonic",
            Self::Inline => "inline",
            Self::Ref => "ref",
            Self::RefCopy => "ref-copy",
            Self::Gateway => "gateway",
            Self::GatewayObjects => "gateway-objects",
            Self::GatewayStream => "gateway-stream",
        }
    }

    /// Whether stock tonic calls an address.
    pub(crate) fn speaks_http2(self, address: &str) -> bool {
        match self {
            Self::Tonic => true,
            Self::Inline | Self::Ref | Self::RefCopy => false,
            // The load generator is the world to a gateway.
            _ => address.starts_with("unix:"),
        }
    }

    /// Whether calls go by way of a gateway.
    pub(crate) fn has_gateway(self) -> bool {
        Self::BY_GATEWAY.contains(&self)
    }

    /// Whether its processes are members of a pool.
    pub(crate) fn has_pool(self) -> bool {
        matches!(self, Self::Ref | Self::RefCopy)
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Side {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.iter().copied().find(|side| side.name() == text).ok_or_else(|| {
            let known: Vec<_> = Self::ALL.iter().map(|side| side.name()).collect();
            format!("no such side; there are {}", known.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back_and_unknown_ones_are_answered_with_the_known() {
        for &side in Side::ALL {
            assert_eq!(side.name().parse(), Ok(side));
            assert_eq!(serde_json::to_value(side).unwrap(), side.name());
        }
        let error = "pigeon".parse::<Side>().unwrap_err();
        assert!(
            error.contains("tonic, inline, ref, ref-copy, gateway, gateway-objects, gateway-stream"),
            "{error}"
        );
    }
}
