//! How many connections the world may have, beside what else needs descriptors: backends, targets elsewhere, the page of
//! figures and the control socket.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::Config;

/// Kept for all but the world's connections: half of the descriptors, and no more than this.
const RESERVE_MAX: u64 = 4096;

/// Connections of the world that fit into so many descriptors.
fn fitting(descriptors: u64) -> u64 {
    descriptors - (descriptors / 2).min(RESERVE_MAX)
}

/// Descriptors that a config needs.
fn needed(config: &Config) -> u64 {
    let connections = u64::from(config.limits.connections);
    connections + connections.min(RESERVE_MAX)
}

/// Descriptors that this process may have.
fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// How many connections of the world there may be at once: what the config says, as far as descriptors reach.
pub(crate) fn connections_max(config: &Config) -> u32 {
    u32::try_from(fitting(limit())).unwrap_or(u32::MAX).min(config.limits.connections)
}

/// How many of those may be one address's: what the config says, and no more than three quarters, so that some are left to others.
pub(crate) fn connections_per_address_max(config: &Config) -> u32 {
    share_of_address(connections_max(config)).min(config.limits.connections_per_address)
}

/// Three quarters of so many connections. One at least: an address alone is not kept out.
fn share_of_address(connections: u32) -> u32 {
    (connections - connections.div_ceil(4)).max(1)
}

/// Warns of a config that asks for more connections than there are descriptors for.
pub(crate) fn warn_if_short(config: &Config) {
    let (wanted, max) = (config.limits.connections, connections_max(config));
    if max < wanted {
        let (descriptors, needed) = (limit(), needed(config));
        tracing::warn!(
            wanted,
            max,
            descriptors,
            "limits.connections is more than the descriptors of this process allow: no more than `max` connections are let in; \
             raise its limit to {needed} (LimitNOFILE of systemd, --ulimit nofile of containers, ulimit -n), or lower limits.connections"
        );
    }
}

/// Raises the limit of descriptors of this process to what a config needs, as far as the system lets it (its hard limit). For a
/// program that is a gateway and nothing else, at its start.
pub fn raise_descriptor_limit(config: &Config) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = needed(config).min(maximum.unwrap_or(u64::MAX));
    if current.is_some_and(|current| current < wanted) {
        // What isn't raised is warned of when the gateway starts.
        _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_leaves_a_quarter_of_the_connections_to_others() {
        assert_eq!([1, 2, 8, 512, 4096].map(share_of_address), [1, 1, 6, 384, 3072]);
        let config =
            Config::from_toml("limits.connections = 20\nlimits.connections_per_address = 20\n").unwrap();
        assert_eq!(connections_per_address_max(&config), 15);
        let config =
            Config::from_toml("limits.connections = 20\nlimits.connections_per_address = 7\n").unwrap();
        assert_eq!(connections_per_address_max(&config), 7);
    }

    #[test]
    fn half_of_few_descriptors_and_all_but_some_of_many_are_the_worlds() {
        assert_eq!([16, 1024, 8192, 65_536].map(fitting), [8, 512, 4096, 61_440]);
        for connections in [1, 100, 4096, 100_000] {
            let config = Config::from_toml(&format!("limits.connections = {connections}\n")).unwrap();
            assert!(fitting(needed(&config)) >= connections, "{connections}");
            assert!(fitting(needed(&config) - 2) < connections, "{connections}");
        }
    }
}
