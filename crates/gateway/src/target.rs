//! A server elsewhere that backends call by way of the gateway: its addresses, which may change, and what its connections need.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tollfree::{Change, Channel, ChannelBuilder, Endpoint};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use crate::account::{Counted, EgressConnections};
use crate::config::TargetConfig;
use crate::notices::Notices;
use crate::reload::Current;

/// How long looking a name up may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// When to try again where that failed, at first and at most.
const RETRY: Duration = Duration::from_secs(1);
/// Changes of addresses that may wait to be taken up.
const CHANGE_COUNT: usize = 64;

/// What changes a channel's addresses.
type Changes = mpsc::Sender<Change<SocketAddr, Endpoint>>;

/// The files of a target, as they were when the gateway started.
#[derive(Clone, Debug, Default)]
pub(crate) struct Files {
    pub(crate) ca: Option<Vec<u8>>,
    pub(crate) identity: Option<(Vec<u8>, Vec<u8>)>,
}

/// Lines of the log about targets: a process has its group's targets opened as often as it likes.
#[derive(Default)]
pub(crate) struct TargetNotices {
    unknown: Notices,
    crowded: Notices,
}

/// What writes those lines for one target.
pub(crate) struct Reporter {
    pub(crate) notices: Arc<TargetNotices>,
    pub(crate) config: Current,
    pub(crate) group: String,
    pub(crate) target: String,
}

impl Reporter {
    fn unknown(&self, why: &str, known: usize) {
        let Reporter { notices, config, group, target } = self;
        if let Some(unsaid) = notices.unknown.turn(&config.load(), group) {
            tracing::warn!(group, target, why, known, unsaid, "the addresses of a target can't be found");
        }
    }

    fn crowded(&self, known: usize, lacking: usize) {
        let Reporter { notices, config, group, target } = self;
        if let Some(unsaid) = notices.crowded.turn(&config.load(), group) {
            tracing::warn!(
                group,
                target,
                known,
                lacking,
                unsaid,
                "a group has no connections left for addresses: limits.egress_connections"
            );
        }
    }
}

/// What is known of a target's addresses.
#[derive(Clone, Debug)]
enum Found {
    NotYet,
    Some,
    /// There has never been one; the log says why.
    None,
    /// The group has no connection left for one.
    Crowded,
}

/// Why a target can't be called now.
#[derive(Debug)]
pub(crate) enum Closed {
    /// No address is known; the log says why.
    Unknown,
    /// The group has no connection left for it.
    Crowded,
}

/// A target with its channel.
#[derive(Clone)]
pub(crate) struct Target {
    channel: Channel,
    found: watch::Receiver<Found>,
}

/// The parts of `https://host:port`.
pub(crate) struct Name<'t> {
    pub(crate) is_tls: bool,
    pub(crate) host: &'t str,
    pub(crate) port: u16,
}

impl<'t> Name<'t> {
    /// None for what is no such target.
    pub(crate) fn of(target: &'t str) -> Option<Name<'t>> {
        let (is_tls, rest) = match target.strip_prefix("https://") {
            Some(rest) => (true, rest),
            None => (false, target.strip_prefix("http://")?),
        };
        let uri: http::Uri = target.parse().ok()?;
        let has_more = uri.path_and_query().is_some_and(|path| path.as_str() != "/");
        let port = uri.port_u16()?;
        let (host, _) = rest.trim_end_matches('/').rsplit_once(':')?;
        (!has_more && !host.contains('@')).then_some(Name {
            is_tls,
            host: host.trim_matches(['[', ']']),
            port,
        })
    }
}

impl Target {
    /// Must be called in a tokio runtime. Connects at the first call.
    ///
    /// # Errors
    /// What is wrong with the target or its settings, in words.
    pub(crate) fn open(
        reporter: Reporter,
        config: &TargetConfig,
        files: &Files,
        connections: EgressConnections,
        configs: watch::Receiver<u64>,
    ) -> Result<Target, String> {
        let (channel, changes, hosts) = Self::prepare(&reporter.target, config, files)?;
        let (say, found) = watch::channel(Found::NotYet);
        let addresses = Addresses { hosts, known: HashMap::new(), connections };
        tokio::spawn(addresses.follow(reporter, changes, configs, say));
        Ok(Target { channel, found })
    }

    /// Whether a target can be opened.
    ///
    /// # Errors
    /// As [`Target::open`].
    pub(crate) fn check(target: &str, config: &TargetConfig, files: &Files) -> Result<(), String> {
        Self::prepare(target, config, files).map(drop)
    }

    fn prepare(
        target: &str,
        config: &TargetConfig,
        files: &Files,
    ) -> Result<(Channel, Changes, Hosts), String> {
        let name = Name::of(target).ok_or("write https://host:port or http://host:port")?;
        let origin = target.parse().map_err(|error| format!("{error}"))?;
        let mut builder =
            ChannelBuilder::default().origin(origin).balance(tollfree::Balance::LeastOutstanding);
        if name.is_tls {
            let mut tls = ClientTlsConfig::new().domain_name(name.host);
            if let Some(ca) = &files.ca {
                tls = tls.ca_certificate(Certificate::from_pem(ca));
            }
            if let Some((certificate, key)) = &files.identity {
                tls = tls.identity(Identity::from_pem(certificate, key));
            }
            builder = builder.tls_config(tls);
        }
        if let Some(json) = &config.service_config {
            builder = builder.service_config(json.clone());
        }
        let (channel, changes) = builder.balance_channel(CHANGE_COUNT).map_err(|error| error.to_string())?;
        let hosts = Hosts {
            scheme: if name.is_tls { "https" } else { "http" },
            names: match config.addresses.is_empty() {
                true => vec![(name.host.to_owned(), name.port)],
                false => {
                    config.addresses.iter().map(|address| host_and_port(address)).collect::<Result<_, _>>()?
                }
            },
            every: Duration::from_millis(config.resolve_every_ms),
        };
        Ok((channel, changes, hosts))
    }

    /// What makes calls, once an address is known.
    ///
    /// # Errors
    /// None has ever been found, or the group has no connection left for one.
    pub(crate) async fn channel(&self) -> Result<Channel, Closed> {
        let mut found = self.found.clone();
        let known = found.wait_for(|found| !matches!(found, Found::NotYet)).await;
        match known.as_deref() {
            Ok(Found::None) => Err(Closed::Unknown),
            Ok(Found::Crowded) => Err(Closed::Crowded),
            // The task that looks ends with the channel alone.
            _ => Ok(self.channel.clone()),
        }
    }
}

fn host_and_port(address: &str) -> Result<(String, u16), String> {
    let wrong = || format!("\"{address}\" is no address: write host:port");
    let (host, port) = address.rsplit_once(':').ok_or_else(wrong)?;
    let port = port.parse().map_err(|_| wrong())?;
    Ok((host.trim_matches(['[', ']']).to_owned(), port))
}

/// Where a target's addresses come from.
struct Hosts {
    scheme: &'static str,
    names: Vec<(String, u16)>,
    every: Duration,
}

impl Hosts {
    async fn look_up(&self) -> Result<HashSet<SocketAddr>, String> {
        let mut all = HashSet::new();
        for (host, port) in &self.names {
            let looked_up = tokio::time::timeout(PATIENCE, tokio::net::lookup_host((&**host, *port))).await;
            let found = looked_up
                .map_err(|_| format!("the name {host} was not found in {} s", PATIENCE.as_secs()))?;
            all.extend(found.map_err(|error| format!("the name {host} can't be found: {error}"))?);
        }
        if all.is_empty() { Err("its name has no address".to_owned()) } else { Ok(all) }
    }
}

/// A target's addresses: those that calls go to, each with its connection.
struct Addresses {
    hosts: Hosts,
    known: HashMap<SocketAddr, Counted>,
    connections: EgressConnections,
}

impl Addresses {
    /// Looks the names up again and again, until the channel has gone. Where a name can't be looked up, what is known stays.
    async fn follow(
        mut self,
        reporter: Reporter,
        changes: Changes,
        mut configs: watch::Receiver<u64>,
        say: watch::Sender<Found>,
    ) {
        let connections = self.connections.clone();
        let mut retry = RETRY;
        let mut was_crowded = false;
        loop {
            let freed = connections.freed();
            tokio::pin!(freed);
            freed.as_mut().enable();
            configs.mark_unchanged();
            let mut lacking = 0;
            let pause = match self.hosts.look_up().await {
                Ok(now) => {
                    let Ok(left_out) = self.change_to(now, &changes).await else { return };
                    lacking = left_out;
                    let found = if self.known.is_empty() { Found::Crowded } else { Found::Some };
                    say.send_replace(found);
                    retry = RETRY;
                    self.hosts.every
                }
                Err(why) => {
                    reporter.unknown(&why, self.known.len());
                    if self.known.is_empty() {
                        say.send_replace(Found::None);
                    }
                    let pause = retry;
                    retry = (2 * retry).min(self.hosts.every.max(RETRY));
                    pause
                }
            };
            let is_crowded = lacking > 0;
            if is_crowded && !was_crowded {
                reporter.crowded(self.known.len(), lacking);
            }
            was_crowded = is_crowded;
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = freed, if is_crowded => {}
                Ok(()) = configs.changed(), if is_crowded => {}
                () = changes.closed() => return,
            }
        }
    }

    /// Gives how many addresses the group had no connection for.
    ///
    /// # Errors
    /// The channel has gone.
    async fn change_to(&mut self, now: HashSet<SocketAddr>, changes: &Changes) -> Result<usize, ()> {
        self.insert(&now, changes).await?;
        let gone: Vec<_> = self.known.keys().filter(|address| !now.contains(address)).copied().collect();
        for address in &gone {
            changes.send(Change::Remove(*address)).await.map_err(|_| ())?;
            self.known.remove(address);
        }
        if !gone.is_empty() {
            // There is room for others.
            self.insert(&now, changes).await?;
        }
        Ok(now.iter().filter(|address| !self.known.contains_key(address)).count())
    }

    async fn insert(&mut self, now: &HashSet<SocketAddr>, changes: &Changes) -> Result<(), ()> {
        for address in now {
            if self.known.contains_key(address) {
                continue;
            }
            let uri = format!("{}://{address}", self.hosts.scheme);
            let Ok(endpoint) = Endpoint::from_shared(uri) else { continue };
            let Some(counted) = self.connections.take() else { return Ok(()) };
            changes.send(Change::Insert(*address, endpoint)).await.map_err(|_| ())?;
            self.known.insert(*address, counted);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_a_scheme_a_host_and_a_port() {
        let parts = |target| Name::of(target).map(|name| (name.is_tls, name.host.to_owned(), name.port));
        assert_eq!(parts("https://inventory:443"), Some((true, "inventory".to_owned(), 443)));
        assert_eq!(parts("http://[::1]:80"), Some((false, "::1".to_owned(), 80)));
        for wrong in [
            "inventory:443",
            "https://inventory",
            "https://inventory:1/path",
            "https://inventory@localhost:1",
            "http://inventory:b",
            "group:x",
        ] {
            assert!(parts(wrong).is_none(), "{wrong}");
        }
    }
}
