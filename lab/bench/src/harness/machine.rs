//! The machine that figures were taken on, as far as it matters for them.

use std::collections::BTreeMap;
use std::fs;

use serde::Serialize;

use crate::cores::{CoreIdx, Cores};

/// What a reader must know to compare two runs.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// The processor's name.
    pub cpu: String,
    /// Cores that the run could use.
    pub cores: usize,
    /// Whether a hypervisor is beneath.
    pub virtual_machine: bool,
    /// The kernel's release.
    pub kernel: String,
    /// Main memory in bytes.
    pub memory_bytes: u64,
    /// Core of the server under `split`, of both under `same-core`.
    pub server_core: CoreIdx,
    /// Core of the client under `split`.
    pub client_core: Option<CoreIdx>,
    /// The allocator in both processes of every side.
    pub allocator: &'static str,
    /// Settings of the allocator in the environment of both.
    pub allocator_settings: BTreeMap<String, String>,
    /// `release`, or `debug`, whose figures mean nothing.
    pub build: &'static str,
    /// Tollfree's version.
    pub version: &'static str,
    /// When the run began, UTC.
    pub started_at: String,
}

impl Machine {
    /// A line for people, and one for each setting of the allocator.
    pub(crate) fn in_words(&self) -> String {
        let kind = if self.virtual_machine { "virtual" } else { "physical" };
        let mut text = format!(
            "{}, {} {kind} cores, Linux {}, {} build of Tollfree {}, {}\n",
            self.cpu, self.cores, self.kernel, self.build, self.version, self.allocator
        );
        for (name, value) in &self.allocator_settings {
            text.push_str(&format!("{name}={value}\n"));
        }
        if self.build == "debug" {
            text.push_str("A DEBUG BUILD: these figures mean nothing.\n");
        }
        text
    }

    /// Looks around. `settings` are what the processes get beside what they inherit.
    pub fn look(cores: &Cores, settings: &[(&str, &str)]) -> Self {
        let given = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let line = |text: &str, key: &str| {
            let line = text.lines().find(|line| line.starts_with(key))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let memory_kib: Option<u64> =
            line(&meminfo, "MemTotal").and_then(|text| text.split(' ').next()?.parse().ok());
        Self {
            cpu: line(&cpuinfo, "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cores: cores.usable_count(),
            virtual_machine: line(&cpuinfo, "flags")
                .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            memory_bytes: memory_kib.unwrap_or(0) << 10,
            server_core: cores.server(),
            client_core: cores.client(),
            allocator: "system malloc",
            allocator_settings: std::env::vars()
                .filter(|(name, _)| {
                    name.starts_with("MALLOC_") || name == "GLIBC_TUNABLES" || name == "LD_PRELOAD"
                })
                .chain(given)
                .collect(),
            build: if cfg!(debug_assertions) { "debug" } else { "release" },
            version: env!("CARGO_PKG_VERSION"),
            started_at: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        }
    }
}
