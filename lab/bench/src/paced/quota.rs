//! A quota of processor time for the server, by a control group of its own.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize, Serializer};

/// The kernel counts quotas in periods of this length, in microseconds.
const PERIOD_US: u64 = 100_000;

/// How much processor time a server may use: no bound, or a part of one core.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quota {
    /// Thousandths of a core; 0 for no bound.
    milli: u32,
}

impl Quota {
    /// The bound in cores.
    #[must_use]
    pub fn cores(self) -> Option<f64> {
        (self.milli > 0).then(|| f64::from(self.milli) / 1000.0)
    }
}

impl FromStr for Quota {
    type Err = String;

    fn from_str(text: &str) -> Result<Quota, String> {
        if text == "none" {
            return Ok(Quota::default());
        }
        match text.parse::<f64>() {
            Ok(cores) if (0.01..=1024.0).contains(&cores) => Ok(Quota { milli: (cores * 1000.0) as u32 }),
            _ => Err("a quota is `none` or a number of cores from 0.01 to 1024, such as 0.5".to_owned()),
        }
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cores() {
            None => f.pad("none"),
            Some(cores) => f.pad(&cores.to_string()),
        }
    }
}

impl Serialize for Quota {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.cores().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Quota {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Quota, D::Error> {
        let cores = Option::<f64>::deserialize(deserializer)?;
        Ok(Quota { milli: cores.map_or(0, |cores| (cores * 1000.0).round() as u32) })
    }
}

/// A control group with a quota. Removed when dropped, once its processes have ended.
#[derive(Debug)]
pub(super) struct Group {
    path: PathBuf,
}

impl Group {
    /// Makes a group beneath this process's own. The error says why there can be none.
    pub(super) fn create(cores: f64) -> Result<Group, String> {
        let read = |path| fs::read_to_string(path).map_err(|error| format!("cannot read {path}: {error}"));
        let own = own_group(&read("/proc/self/mountinfo")?, &read("/proc/self/cgroup")?);
        let (own, is_unified) =
            own.ok_or("not run: no control group with quotas of processor time is mounted here")?;
        let path = own.join(format!("tollfree-bench-{}", std::process::id()));
        let refused = |error| {
            format!(
                "not run: cannot make a control group with a quota beneath {} ({error}); a quota needs the right \
                 to write there",
                own.display()
            )
        };
        fs::create_dir(&path).map_err(refused)?;
        let group = Group { path };
        let quota = (cores * PERIOD_US as f64) as u64;
        if is_unified {
            fs::write(group.path.join("cpu.max"), format!("{quota} {PERIOD_US}")).map_err(refused)?;
        } else {
            fs::write(group.path.join("cpu.cfs_period_us"), PERIOD_US.to_string()).map_err(refused)?;
            fs::write(group.path.join("cpu.cfs_quota_us"), quota.to_string()).map_err(refused)?;
        }
        Ok(group)
    }

    /// Puts a process with all its threads under the quota.
    pub(super) fn take_in(&self, pid: u32) -> Result<(), String> {
        let put = fs::write(self.path.join("cgroup.procs"), pid.to_string());
        put.map_err(|error| format!("not run: cannot put the server under a quota: {error}"))
    }

    /// The file that says how long the group was kept from running.
    pub(super) fn account(&self) -> PathBuf {
        self.path.join("cpu.stat")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.path) {
            tracing::warn!(%error, group = %self.path.display(), "a control group is left behind");
        }
    }
}

/// How long the processes of a group's account were kept from running, in nanoseconds.
pub(super) fn throttled_ns(account: &Path) -> Result<u64, String> {
    let text =
        fs::read_to_string(account).map_err(|error| format!("cannot read the quota's account: {error}"))?;
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse::<u64>().ok()
    };
    let ns = field("throttled_usec ").map(|us| us * 1000).or_else(|| field("throttled_time "));
    ns.ok_or_else(|| "the quota's account has an unknown form".to_owned())
}

/// This process's own group among those that have quotas, and whether it is one of the unified hierarchy.
fn own_group(mounts: &str, groups: &str) -> Option<(PathBuf, bool)> {
    let mount = |kind: &str, controller: Option<&str>| {
        mounts.lines().find_map(|line| {
            let (place, fs) = line.split_once(" - ")?;
            let mut fs = fs.split(' ');
            let (is_kind, options) = (fs.next()? == kind, fs.nth(1)?);
            let has = controller.is_none_or(|wanted| options.split(',').any(|option| option == wanted));
            let mut place = place.split(' ').skip(3);
            let (root, point) = (place.next()?, place.next()?);
            (is_kind && has).then(|| (root.to_owned(), PathBuf::from(point)))
        })
    };
    let path = |wanted: &dyn Fn(&str) -> bool| {
        groups.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next()?, fields.next()?);
            wanted(controllers).then(|| path.to_owned())
        })
    };
    let beneath = |(root, point): (String, PathBuf), path: String| {
        let inside = path.strip_prefix(root.trim_end_matches('/')).unwrap_or("");
        point.join(inside.trim_start_matches('/'))
    };
    let has_cpu = |controllers: &str| controllers.split(',').any(|name| name == "cpu");
    if let Some((mount, path)) = mount("cgroup", Some("cpu")).zip(path(&has_cpu)) {
        return Some((beneath(mount, path), false));
    }
    let (mount, path) = mount("cgroup2", None).zip(path(&str::is_empty))?;
    Some((beneath(mount, path), true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_in_both_hierarchies() {
        let old = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
                   32 31 0:29 /docker/a /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n\
                   41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        let groups = "4:cpu,cpuacct:/docker/a/b\n0::/x\n";
        assert_eq!(own_group(old, groups), Some(("/sys/fs/cgroup/cpu,cpuacct/b".into(), false)));
        let new = "41 31 0:38 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(own_group(new, "0::/user.slice/x\n"), Some(("/sys/fs/cgroup/user.slice/x".into(), true)));
        assert_eq!(own_group("", ""), None);
    }

    #[test]
    fn quotas_have_one_spelling_and_travel() {
        for (text, json) in [("none", "null"), ("0.5", "0.5"), ("2", "2.0")] {
            let quota: Quota = text.parse().unwrap();
            assert_eq!(
                (quota.to_string().as_str(), serde_json::to_string(&quota).unwrap().as_str()),
                (text, json)
            );
            assert_eq!(serde_json::from_str::<Quota>(json).unwrap(), quota);
        }
        for text in ["0", "-1", "half", "NaN"] {
            assert!(text.parse::<Quota>().is_err(), "{text}");
        }
    }

    #[test]
    fn accounts_of_both_hierarchies_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cpu.stat");
        for (text, ns) in [("nr_throttled 2\nthrottled_time 77\n", 77), ("throttled_usec 3\n", 3000)] {
            fs::write(&path, text).unwrap();
            assert_eq!(throttled_ns(&path), Ok(ns));
        }
        fs::write(&path, "usage 1\n").unwrap();
        assert!(throttled_ns(&path).is_err());
    }
}
