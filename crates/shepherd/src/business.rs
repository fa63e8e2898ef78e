//! The socket of business processes: who may attach as what.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tollfree::shepherd::{Arrival, Attached, Door, Limits};
use tollfree::{PeerIdentity, PeerPolicy, ServeError};

use crate::config::Config;
use crate::metrics::Metrics;
use crate::outward::{Outward, Via};
use crate::refusal::Refusal;
use crate::reload::Current;
use crate::workers::Workers;

/// Which users may attach to which groups, and with what.
pub(crate) struct Tenants {
    config: Current,
    /// Whom the socket was bound for.
    peers: PeerPolicy,
    version: watch::Sender<u64>,
}

/// Everybody who is in some group.
fn peers(config: &Config) -> PeerPolicy {
    let mut users: Vec<u32> = config.groups.values().flat_map(|group| group.users.iter().copied()).collect();
    if users.is_empty() {
        return PeerPolicy::SameUser;
    }
    users.push(rustix::process::geteuid().as_raw());
    PeerPolicy::Users(users)
}

impl Tenants {
    pub(crate) fn new(config: Current) -> Tenants {
        let peers = peers(&config.load());
        Tenants { config, peers, version: watch::Sender::new(0) }
    }

    /// Whether the socket lets in a user's processes.
    pub(crate) fn may_come(&self) -> impl Fn(u32) -> bool {
        |user| self.peers.allows(user)
    }

    /// The config that holds now.
    pub(crate) fn config(&self) -> &Current {
        &self.config
    }

    /// Another config holds.
    pub(crate) fn changed(&self) {
        self.version.send_modify(|version| *version += 1);
    }

    /// Tells when another config holds.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Which of the configs that have held this is.
    pub(crate) fn version(&self) -> u64 {
        *self.version.borrow()
    }

    /// Resolves when it is not any more as `may_call` said.
    async fn decided_otherwise(&self, user: u32, target: &str, before: bool) {
        let mut version = self.version.subscribe();
        while self.may_call(user, target) == before {
            if version.changed().await.is_err() {
                std::future::pending().await
            }
        }
    }

    /// Whether a user's processes are a group's.
    pub(crate) fn are_of(&self, user: u32, group: &str) -> bool {
        let config = self.config.load();
        match config.groups.get(group) {
            Some(group) if !group.users.is_empty() => group.users.contains(&user),
            Some(_) => PeerPolicy::SameUser.allows(user),
            None => config.groups.is_empty(),
        }
    }

    /// Whether processes that call a group may do so without the shepherd between.
    pub(crate) fn has_shortcuts(&self, group: &str) -> bool {
        self.config.load().groups.get(group).is_some_and(|group| group.shortcuts)
    }

    /// Whether some group of a user may call there.
    pub(crate) fn may_call(&self, user: u32, target: &str) -> bool {
        !self.callers(user, target).is_empty()
    }

    /// The groups of a user that may call there: the one that is called, if it's the user's, then others by name.
    pub(crate) fn callers(&self, user: u32, target: &str) -> Vec<String> {
        let called = target.strip_prefix("group:").filter(|group| self.are_of(user, group));
        let config = self.config.load();
        let others = config.groups.iter().filter(|(name, group)| {
            called != Some(name.as_str())
                && group.via.iter().any(|via| via == target)
                && self.are_of(user, name)
        });
        called.map(str::to_owned).into_iter().chain(others.map(|(name, _)| name.clone())).collect()
    }

    /// Whether a process may attach as it says; the reason is told to it.
    pub(crate) fn check(
        &self,
        peer: PeerIdentity,
        group: &str,
        services: &[String],
    ) -> Result<(), &'static str> {
        let config = self.config.load();
        if !config.groups.is_empty() && !config.groups.contains_key(group) {
            return Err("the shepherd has no such group: name it in its config, or attach with another");
        }
        if !self.are_of(peer.uid, group) {
            return Err("the shepherd's config lets no process of this user into this group");
        }
        let allowed = config.groups.get(group).map_or(&[][..], |group| &group.services);
        for service in services {
            let is_free = || !config.groups.values().any(|group| group.services.contains(service));
            let may = if allowed.is_empty() { is_free() } else { allowed.contains(service) };
            if !may {
                return Err(
                    "a service is another group's, or not among this group's: see the shepherd's config",
                );
            }
        }
        Ok(())
    }
}

/// The bound socket.
pub(crate) struct Business {
    door: Door,
    socket: String,
    tenants: Arc<Tenants>,
    workers: Arc<Workers>,
    metrics: Arc<Metrics>,
    outward: Arc<Outward>,
}

impl Business {
    pub(crate) async fn bind(
        config: &Config,
        tenants: Arc<Tenants>,
        workers: Arc<Workers>,
        metrics: Arc<Metrics>,
        outward: Arc<Outward>,
    ) -> Result<Business, ServeError> {
        let (business, profile) = (&config.business, &config.profile);
        let socket = business.socket.as_str();
        let limits = Limits {
            peers: tenants.peers.clone(),
            wait: business.wait.into(),
            objects: business.objects,
            ring_len: profile.ring_bytes as usize,
            area_len: profile.area_bytes as usize,
            ..Limits::default()
        };
        let door = Door::bind(socket, limits).await?;
        door.metrics(&metrics.common);
        Ok(Business { door, socket: socket.into(), tenants, workers, metrics, outward })
    }

    pub(crate) fn address(&self) -> &str {
        &self.socket
    }

    /// Lets processes in until `closed`, then waits for `let_go`, at which those who are in are let go.
    pub(crate) async fn serve(mut self, mut closed: watch::Receiver<bool>, let_go: watch::Receiver<bool>) {
        let mut members = JoinSet::new();
        loop {
            let arrival = tokio::select! {
                arrival = self.door.accept() => arrival,
                Some(_) = members.join_next() => continue,
                _ = closed.wait_for(|closed| *closed) => break,
            };
            match arrival {
                Some(Arrival::Attached(attached)) => self.attach(attached, let_go.clone(), &mut members),
                Some(Arrival::Session(session)) => {
                    let (user, target) = (session.peer().uid, session.target().to_owned());
                    let before = self.tenants.may_call(user, &target);
                    let via = Via::new(&self.outward, session.peer(), session.target(), let_go.clone());
                    let (mut let_go, tenants) = (let_go.clone(), self.tenants.clone());
                    let stop = async move {
                        tokio::select! {
                            _ = let_go.wait_for(|go| *go) => {}
                            () = tenants.decided_otherwise(user, &target, before) => {}
                        }
                    };
                    members.spawn(session.serve(via, stop));
                }
                Some(_) => {}
                None => break,
            }
        }
        self.door.close();
        while members.join_next().await.is_some() {}
    }

    fn attach(&self, attached: Attached, mut let_go: watch::Receiver<bool>, members: &mut JoinSet<()>) {
        let peer = attached.process().identity;
        if let Err(reason) = self.tenants.check(peer, attached.group(), attached.services()) {
            self.metrics.refused(Refusal::Attach);
            tracing::warn!(process = ?attached.process(), group = attached.group(), reason, "a process may not attach");
            attached.close(reason);
            return;
        }
        let worker = self.workers.add(attached);
        let attached = worker.attached();
        tracing::info!(
            process = ?attached.process(),
            worker = attached.worker(),
            group = attached.group(),
            services = ?attached.services(),
            "attached"
        );
        let workers = self.workers.clone();
        members.spawn(async move {
            let attached = worker.attached();
            tokio::select! {
                () = attached.closed() => {}
                _ = let_go.wait_for(|go| *go) => {}
            }
            workers.remove(&worker);
            tracing::info!(process = ?attached.process(), worker = attached.worker(), "gone");
        });
    }
}

#[cfg(test)]
mod tests {
    use arc_swap::ArcSwap;

    use super::*;

    fn tenants(text: &str) -> Tenants {
        Tenants::new(Arc::new(ArcSwap::from_pointee(Config::from_toml(text).unwrap())))
    }

    fn own() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    #[test]
    fn groups_are_what_the_config_says() {
        let text = format!(
            "[groups.a]\nusers = [4000000000]\nservices = [\"x.A\"]\nvia = [\"group:b\", \"https://localhost:443\"]\n\
             [groups.b]\n[outward]\nca = \"{}\"\n",
            file!()
        );
        let tenants = tenants(&text);
        let process = |uid| PeerIdentity { pid: 1, uid, gid: 0 };
        let services = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        tenants.check(process(4_000_000_000), "a", &services(&["x.A"])).unwrap();
        tenants.check(process(own()), "b", &services(&["x.B"])).unwrap();
        tenants.check(process(own()), "a", &services(&["x.A"])).expect_err("not this user");
        tenants.check(process(own()), "c", &services(&["x.B"])).expect_err("no such group");
        tenants.check(process(4_000_000_000), "a", &services(&["x.B"])).expect_err("not its service");
        tenants.check(process(own()), "b", &services(&["x.A"])).expect_err("another's service");
        assert!(tenants.may_call(4_000_000_000, "group:a") && tenants.may_call(4_000_000_000, "group:b"));
        assert!(tenants.may_call(4_000_000_000, "https://localhost:443"));
        assert!(!tenants.may_call(own(), "https://localhost:443") && !tenants.may_call(own(), "group:a"));
        assert!(!tenants.may_call(4_000_000_000, "https://localhost:4433"));
        let callers = |target| tenants.callers(4_000_000_000, target);
        assert_eq!([callers("group:a"), callers("group:b")], [["a"], ["a"]]);
    }

    #[test]
    fn the_groups_of_a_user_that_may_call_are_the_called_one_and_others_by_name() {
        let via = "via = [\"group:c\", \"http://localhost:80\"]";
        let text = format!("[groups.d]\n{via}\n[groups.b]\n{via}\n[groups.a]\n[groups.c]\n{via}\n");
        let tenants = tenants(&text);
        assert_eq!(tenants.callers(own(), "group:c"), ["c", "b", "d"]);
        assert_eq!(tenants.callers(own(), "http://localhost:80"), ["b", "c", "d"]);
        assert_eq!(tenants.callers(own(), "group:a"), ["a"]);
        assert_eq!(tenants.callers(4_000_000_000, "group:c"), [""; 0]);
    }

    #[test]
    fn without_groups_nobody_calls_out() {
        let tenants = tenants("");
        assert!(tenants.may_call(own(), "group:any") && !tenants.may_call(own(), "https://localhost:443"));
        assert_eq!(tenants.peers, PeerPolicy::SameUser);
    }
}
