//! Which backend connections serve a call, and which group of them gets it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tonic::Status;

use crate::backend_connection::BackendConnection;
use crate::config::Config;
use crate::load_balancing::Dispatcher;
use crate::policies::Policies;
use crate::refusal::{Refusal, Refused};

/// Services that are remembered after the last process that served them has gone.
const KNOWN_COUNT_MAX: usize = 4096;

/// Whether a service has somebody who serves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Served,
    /// It is configured, or has been attached.
    Absent,
    Unknown,
}

/// What calls are routed by. A change makes a new one.
#[derive(Clone, Default)]
pub(crate) struct Table {
    /// In the order in which they attached.
    by_service: HashMap<String, Vec<Arc<BackendConnection>>>,
    attached: Vec<Arc<BackendConnection>>,
    known: BTreeSet<String>,
    routes: Arc<BTreeMap<String, String>>,
    /// How long a call waits for somebody who serves it.
    patience: Duration,
    policies: Arc<Policies>,
}

impl Table {
    /// Routes as a config has them. Services stay known that it doesn't name any more.
    pub(crate) fn configure(&mut self, config: &Config) {
        let mut routes = config.routes.clone();
        for (name, group) in &config.groups {
            for service in &group.services {
                routes.entry(service.clone()).or_insert_with(|| name.clone());
            }
        }
        for route in routes.keys() {
            self.known.insert(route.split('/').next().unwrap_or_default().to_owned());
        }
        self.routes = Arc::new(routes);
        self.patience = Duration::from_millis(config.limits.attach_wait_ms);
        self.policies = Arc::new(Policies::of(config, &self.policies));
    }

    /// Says to each group how many calls its backend connections may have at once.
    pub(crate) fn count_places(&self) {
        let mut groups: BTreeMap<&str, (&Dispatcher, u64)> = BTreeMap::new();
        for backend_connection in &self.attached {
            let group =
                groups.entry(backend_connection.group()).or_insert((&**backend_connection.dispatcher(), 0));
            group.1 +=
                u64::from(backend_connection.dispatcher().rules.places_of(backend_connection.places()));
        }
        groups.into_values().for_each(|(dispatcher, places)| dispatcher.shares.set_capacity(places));
    }

    /// A backend connection has attached.
    pub(crate) fn add(&mut self, backend_connection: &Arc<BackendConnection>) {
        self.attached.push(backend_connection.clone());
        for service in backend_connection.attached().services() {
            self.by_service.entry(service.clone()).or_default().push(backend_connection.clone());
            if self.known.len() < KNOWN_COUNT_MAX {
                self.known.insert(service.clone());
            }
        }
    }

    /// A backend connection has gone.
    pub(crate) fn remove(&mut self, backend_connection: &Arc<BackendConnection>) {
        self.attached.retain(|other| !Arc::ptr_eq(other, backend_connection));
        for service in backend_connection.attached().services() {
            if let Some(backend_connections) = self.by_service.get_mut(service) {
                backend_connections.retain(|other| !Arc::ptr_eq(other, backend_connection));
                if backend_connections.is_empty() {
                    self.by_service.remove(service);
                }
            }
        }
    }

    /// Each backend connection, in the order in which they attached.
    pub(crate) fn attached(&self) -> &[Arc<BackendConnection>] {
        &self.attached
    }

    /// How long a call waits for somebody who serves it.
    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    pub(crate) fn policies(&self) -> &Policies {
        &self.policies
    }

    /// Backend connections that serve a call's service, and the group of them that gets it: `group`, where that is said.
    pub(crate) fn serving<'t>(
        &'t self,
        path: &str,
        group: Option<&'t str>,
    ) -> (&'t [Arc<BackendConnection>], Option<&'t str>) {
        let backend_connections = self.by_service.get(service_of(path)).map_or(&[][..], Vec::as_slice);
        (backend_connections, group.or_else(|| self.group_of(path)))
    }

    /// The group that gets the calls of a path.
    pub(crate) fn group_of(&self, path: &str) -> Option<&str> {
        let service = service_of(path);
        let routed = self.routes.get(path).or_else(|| self.routes.get(service)).map(String::as_str);
        // Without a route, the group that attached with the service first keeps it as long as one of it is attached.
        let first = || self.by_service.get(service)?.first().map(|attached| attached.group());
        routed.or_else(first)
    }

    pub(crate) fn standing(&self, service: &str) -> Standing {
        let route = self.routes.get(service);
        let mut backend_connections = self.by_service.get(service).into_iter().flatten();
        match backend_connections.any(|backend_connection| {
            route.is_none_or(|group| group == backend_connection.group()) && backend_connection.takes_calls()
        }) {
            true => Standing::Served,
            false if self.known.contains(service) => Standing::Absent,
            false => Standing::Unknown,
        }
    }

    /// Why a call of a path is refused that nobody serves.
    pub(crate) fn nobody(&self, path: &str) -> Refused {
        let service = service_of(path);
        let group = self.group_of(path);
        let is_unhealthy = |of: &Arc<BackendConnection>| {
            group.is_none_or(|group| group == of.group()) && of.wellness().is_unhealthy()
        };
        match self.known.contains(service) {
            true => Refused {
                why: Refusal::Absent,
                status: Status::unavailable(
                    match self.by_service.get(service).is_some_and(|all| all.iter().any(is_unhealthy)) {
                        false => format!("nobody who serves {service} is attached at the moment; try again"),
                        true => format!("nobody who serves {service} is healthy at the moment; try again"),
                    },
                ),
            },
            false => Refused {
                why: Refusal::Unimplemented,
                status: Status::unimplemented(format!("there is no service {service} here")),
            },
        }
    }
}

/// The service of a path such as `acme.v1.Orders/Get`.
pub(crate) fn service_of(path: &str) -> &str {
    path.split('/').next().unwrap_or_default()
}

/// Backend connections of a group that get calls now.
pub(crate) fn takers<'t>(
    backend_connections: &'t [Arc<BackendConnection>],
    group: Option<&str>,
) -> impl Iterator<Item = &'t Arc<BackendConnection>> + Clone {
    members(backend_connections, group).filter(|backend_connection| backend_connection.takes_calls())
}

/// Backend connections of a group that take calls, or will when they do not hang any more.
pub(crate) fn members<'t>(
    backend_connections: &'t [Arc<BackendConnection>],
    group: Option<&str>,
) -> impl Iterator<Item = &'t Arc<BackendConnection>> + Clone {
    backend_connections.iter().filter(move |backend_connection| {
        Some(backend_connection.group()) == group && backend_connection.is_member()
    })
}
