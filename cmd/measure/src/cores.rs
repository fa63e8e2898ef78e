//! Which cores the two processes run on.

use std::fs;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};

use crate::BenchError;
use crate::axis::Placement;

/// A logical CPU by the kernel's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CoreIdx(pub u32);

/// The cores chosen for a run.
#[derive(Debug, Clone)]
pub struct Cores {
    usable: Vec<CoreIdx>,
    server: CoreIdx,
    /// Another core for the client; none on a machine with one.
    client: Option<CoreIdx>,
}

/// Where one case's processes go; `None` is wherever the kernel puts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seats {
    /// The server process's core.
    pub server: Option<CoreIdx>,
    /// The client process's core.
    pub client: Option<CoreIdx>,
}

impl Cores {
    /// Reads which cores this process may use and chooses two that share neither execution units nor, where the
    /// kernel says so, a socket boundary between them.
    ///
    /// # Errors
    /// [`BenchError::System`] when the kernel does not tell.
    pub fn choose() -> Result<Self, BenchError> {
        let set = sched_getaffinity(None).map_err(BenchError::system("cannot read the usable cores"))?;
        let usable: Vec<_> =
            (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).map(|cpu| CoreIdx(cpu as u32)).collect();
        Ok(Self::among(usable, topology))
    }

    fn among(usable: Vec<CoreIdx>, topology: impl Fn(CoreIdx) -> Topology) -> Self {
        let server = usable.first().copied().unwrap_or(CoreIdx(0));
        let home = topology(server);
        let client = usable.iter().copied().filter(|core| *core != server).min_by_key(|core| {
            let there = topology(*core);
            // Hardware threads of one core would fight for it; sockets would add their link.
            let sibling = !home.siblings.is_empty() && home.siblings == there.siblings;
            (sibling, home.package != there.package, core.0)
        });
        Self { usable, server, client }
    }

    /// Cores that this process may use.
    pub fn usable_count(&self) -> usize {
        self.usable.len()
    }

    /// The core of the server process under `split`, and of both under `same-core`.
    pub fn server(&self) -> CoreIdx {
        self.server
    }

    /// The core of the client process under `split`.
    pub fn client(&self) -> Option<CoreIdx> {
        self.client
    }

    /// The core of the `idx`-th of many processes: they go round.
    pub fn nth(&self, idx: usize) -> CoreIdx {
        self.usable.get(idx % self.usable.len().max(1)).copied().unwrap_or(self.server)
    }

    /// Where the two processes of a placement go.
    ///
    /// # Errors
    /// [`BenchError::Refused`] for `split` on a machine with one usable core.
    pub fn seats(&self, placement: Placement) -> Result<Seats, BenchError> {
        match placement {
            Placement::Unpinned => Ok(Seats { server: None, client: None }),
            Placement::SameCore => Ok(Seats { server: Some(self.server), client: Some(self.server) }),
            Placement::Split => match self.client {
                Some(client) => Ok(Seats { server: Some(self.server), client: Some(client) }),
                None => Err(BenchError::Refused(
                    "placement split needs two cores, and this process may use only one; \
                     use --placement same-core or unpinned"
                        .to_owned(),
                )),
            },
        }
    }
}

/// What the kernel says about a core's neighborhood; empty where it says nothing.
#[derive(Default)]
struct Topology {
    siblings: String,
    package: String,
}

fn topology(core: CoreIdx) -> Topology {
    let read = |file: &str| {
        fs::read_to_string(format!("/sys/devices/system/cpu/cpu{}/topology/{file}", core.0))
            .unwrap_or_default()
    };
    Topology { siblings: read("thread_siblings_list"), package: read("physical_package_id") }
}

/// Binds the calling thread, and all that it starts from now on, to one core.
///
/// # Errors
/// [`BenchError::System`] when the kernel refuses.
pub fn pin(core: CoreIdx) -> Result<(), BenchError> {
    let mut set = CpuSet::new();
    set.set(core.0 as usize);
    sched_setaffinity(None, &set).map_err(BenchError::system("cannot pin the process to its core"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(siblings: &str, package: &str) -> Topology {
        Topology { siblings: siblings.to_owned(), package: package.to_owned() }
    }

    #[test]
    fn hardware_threads_of_one_core_and_foreign_sockets_come_last() {
        let cores = (0..4).map(CoreIdx).collect();
        let chosen = Cores::among(cores, |core| match core.0 {
            0 | 1 => of("0-1", "0"),
            2 => of("2", "1"),
            _ => of("3", "0"),
        });
        assert_eq!((chosen.server(), chosen.client()), (CoreIdx(0), Some(CoreIdx(3))));
    }

    #[test]
    fn a_kernel_that_tells_nothing_still_gives_two_cores() {
        let chosen = Cores::among(vec![CoreIdx(4), CoreIdx(7)], |_| Topology::default());
        let seats = chosen.seats(Placement::Split).unwrap();
        assert_eq!(seats, Seats { server: Some(CoreIdx(4)), client: Some(CoreIdx(7)) });
    }

    #[test]
    fn split_on_one_core_is_refused_and_the_others_are_not() {
        let chosen = Cores::among(vec![CoreIdx(5)], |_| Topology::default());
        let error = chosen.seats(Placement::Split).unwrap_err().to_string();
        assert!(error.contains("needs two cores") && error.contains("same-core"), "{error}");
        assert_eq!((chosen.nth(0), chosen.nth(7)), (CoreIdx(5), CoreIdx(5)));
        let same = chosen.seats(Placement::SameCore).unwrap();
        assert_eq!(same.server, same.client);
        assert_eq!(chosen.seats(Placement::Unpinned).unwrap().server, None);
    }

    #[test]
    fn pinning_takes_effect() {
        let core = Cores::choose().unwrap().server();
        std::thread::spawn(move || {
            pin(core).unwrap();
            let set = sched_getaffinity(None).unwrap();
            assert!(set.is_set(core.0 as usize));
            assert_eq!(set.count(), 1);
        })
        .join()
        .unwrap();
    }
}
