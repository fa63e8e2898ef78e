//! By what a backend connection is chosen.

use serde::{Deserialize, Serialize};

/// By what a backend connection is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// The backend connection with the fewest requests outstanding.
    #[default]
    LeastOutstanding,
    /// Each backend connection in its turn.
    RoundRobin,
    /// A backend connection that had the same method lately; methods come to as many backend connections as their load asks for.
    Affinity,
    /// One backend connection for all requests of a connection.
    Static,
}

impl Policy {
    /// Every policy, in the order of [`Policy::number`].
    pub const ALL: [Policy; 4] =
        [Policy::LeastOutstanding, Policy::RoundRobin, Policy::Affinity, Policy::Static];

    /// Its name in a config.
    pub fn name(self) -> &'static str {
        match self {
            Policy::LeastOutstanding => "least_outstanding",
            Policy::RoundRobin => "round_robin",
            Policy::Affinity => "affinity",
            Policy::Static => "static",
        }
    }

    /// Its place in [`Policy::ALL`].
    pub fn number(self) -> u32 {
        self as u32
    }
}
