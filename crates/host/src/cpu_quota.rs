//! How much processor time this process may use: the quota of its control group, read again now and then.
//!
//! A quota may change, and a process may be moved, at any time: what was read counts for a quarter of a second. Reading takes some
//! 20 µs, so a process that hardly looks doesn't read more often than its looking is worth.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tollfree_connection::QuotaHistory;

use crate::counts;

/// What was read counts for this long, in nanoseconds.
const READ_EVERY_NS: u64 = 250_000_000;
/// And, where nobody was told not to look, until this process has looked for so many nanoseconds.
const READ_EACH_LOOKED_NS: u64 = 1_000_000;
/// Readings after which the group itself is looked for again: the process may have been moved.
const FOUND_FOR: u32 = 20;
/// The files that are read are shorter than this, or what is looked for stands before it.
const FILE_LEN: usize = 512;

/// Whether this process had better not spin at all. All its sessions share what was read.
pub(crate) fn is_tight(now_ns: u64) -> bool {
    static READ_AT_NS: AtomicU64 = AtomicU64::new(0);
    static TIGHT: AtomicBool = AtomicBool::new(false);
    static LOOKED_NS: AtomicU64 = AtomicU64::new(0);
    static FOUND: Mutex<Found> = Mutex::new(Found { group: None, left: 0, history: QuotaHistory::NONE });
    let read_at = READ_AT_NS.load(Ordering::Relaxed);
    if now_ns.saturating_sub(read_at) >= READ_EVERY_NS || read_at == 0 {
        let looked_ns = counts::looked_ns();
        let since = looked_ns.saturating_sub(LOOKED_NS.load(Ordering::Relaxed));
        let has_looked = since >= READ_EACH_LOOKED_NS;
        if !has_looked && read_at != 0 && !TIGHT.load(Ordering::Relaxed) {
            return false;
        }
        // One thread reads, the others go by what was read before.
        let claimed =
            READ_AT_NS.compare_exchange(read_at, now_ns.max(1), Ordering::Relaxed, Ordering::Relaxed);
        if claimed.is_ok() {
            LOOKED_NS.store(looked_ns, Ordering::Relaxed);
            if let Some(mut found) = FOUND.try_lock() {
                TIGHT.store(found.is_tight(), Ordering::Relaxed);
            }
        }
    }
    TIGHT.load(Ordering::Relaxed)
}

/// The group that was found, and for how many readings it counts.
#[derive(Debug)]
struct Found {
    group: Option<Group>,
    left: u32,
    history: QuotaHistory,
}

impl Found {
    fn is_tight(&mut self) -> bool {
        let Limit { milli, throttled } = self.read();
        self.history.read(milli, throttled)
    }

    fn read(&mut self) -> Limit {
        if self.left == 0 {
            self.group = Group::own(Path::new("/proc/self"));
            self.left = FOUND_FOR;
        }
        self.left -= 1;
        self.group.as_ref().map_or(Limit::default(), Group::read)
    }
}

/// What a control group says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Limit {
    /// Thousandths of a core, if there is a quota.
    milli: Option<u64>,
    /// How often the group was kept from running.
    throttled: u64,
}

/// The control group of this process that has quotas of processor time.
#[derive(Debug, PartialEq, Eq)]
struct Group {
    path: PathBuf,
    /// Of the hierarchy that has all controllers.
    is_unified: bool,
}

impl Group {
    /// As `/proc/self` tells; none where it tells nothing.
    fn own(process: &Path) -> Option<Group> {
        let mounts = fs::read_to_string(process.join("mountinfo")).ok()?;
        let groups = fs::read_to_string(process.join("cgroup")).ok()?;
        Group::among(&mounts, &groups)
    }

    fn among(mounts: &str, groups: &str) -> Option<Group> {
        let of_kind = |kind: &str, controller: &str| {
            mounts.lines().find_map(|line| {
                let (place, system) = line.split_once(" - ")?;
                let mut system = system.split(' ');
                let is_kind = system.next()? == kind;
                let has =
                    system.nth(1)?.split(',').any(|option| option == controller || controller.is_empty());
                let mut place = place.split(' ').skip(3);
                let (root, point) = (place.next()?, place.next()?);
                (is_kind && has).then_some((root, point))
            })
        };
        let path_of = |is_wanted: fn(&str) -> bool| {
            groups.lines().find_map(|line| {
                let mut fields = line.splitn(3, ':').skip(1);
                let (controllers, path) = (fields.next()?, fields.next()?);
                is_wanted(controllers).then_some(path)
            })
        };
        // In a container the mount's root is the container's own group, and so is the path, or `/`.
        let beneath = |(root, point): (&str, &str), path: &str| {
            let inside = path.strip_prefix(root.trim_end_matches('/')).unwrap_or("");
            Path::new(point).join(inside.trim_start_matches('/'))
        };
        let old = of_kind("cgroup", "cpu")
            .zip(path_of(|controllers| controllers.split(',').any(|name| name == "cpu")));
        if let Some((mount, path)) = old {
            return Some(Group { path: beneath(mount, path), is_unified: false });
        }
        let (mount, path) = of_kind("cgroup2", "").zip(path_of(str::is_empty))?;
        Some(Group { path: beneath(mount, path), is_unified: true })
    }

    /// What can't be read is no limit.
    fn read(&self) -> Limit {
        let read = |name: &str| read_short(&self.path.join(name)).unwrap_or_default();
        let number = |text: &str| text.trim().parse::<u64>().ok();
        let milli = if self.is_unified {
            let text = read("cpu.max");
            let (quota, period) = text.split_once(' ').unwrap_or_default();
            number(quota).zip(number(period))
        } else {
            // No quota is -1.
            number(&read("cpu.cfs_quota_us")).zip(number(&read("cpu.cfs_period_us")))
        };
        let account = read("cpu.stat");
        let throttled = account.lines().find_map(|line| line.strip_prefix("nr_throttled "));
        Limit {
            milli: milli.map(|(quota, period)| quota.saturating_mul(1000) / period.max(1)),
            throttled: throttled.and_then(number).unwrap_or(0),
        }
    }
}

/// A file of the kernel's, which gives all it has at the first read.
fn read_short(path: &Path) -> Option<String> {
    let mut text = [0; FILE_LEN];
    let len = File::open(path).and_then(|mut file| file.read(&mut text)).ok()?;
    // What was cut off may end within a character; what is looked for is ASCII.
    Some(String::from_utf8_lossy(&text[..len]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_is_found_in_both_hierarchies_and_in_a_container() {
        let old = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
                   32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                   41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let found = Group::among(old, "4:cpu,cpuacct:/a/b\n0::/x\n");
        assert_eq!(found, Some(Group { path: "/sys/fs/cgroup/cpu,cpuacct/a/b".into(), is_unified: false }));
        let new = "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
        let found = Group::among(new, "0::/user.slice\n");
        assert_eq!(found, Some(Group { path: "/sys/fs/cgroup/user.slice".into(), is_unified: true }));
        let container = "41 31 0:38 /docker/7 /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n";
        let found = Group::among(container, "0::/docker/7\n");
        assert_eq!(found, Some(Group { path: "/sys/fs/cgroup/".into(), is_unified: true }));
        assert_eq!(Group::among("", "0::/\n"), None);
    }

    #[test]
    fn a_quota_is_seen_to_come_and_go_in_both_hierarchies() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
        let group = |is_unified| Group { path: directory.path().into(), is_unified };
        assert_eq!(group(true).read(), Limit::default(), "nothing to be read is no limit");
        write("cpu.stat", "usage_usec 5\nnr_throttled 3\n");
        for (text, milli) in
            [("max 100000\n", None), ("50000 100000\n", Some(500)), ("200000 100000", Some(2000)), ("", None)]
        {
            write("cpu.max", text);
            let limit = group(true).read();
            assert_eq!(limit, Limit { milli, throttled: 3 });
            let is_tight =
                Found { group: Some(group(true)), left: 1, history: QuotaHistory::NONE }.is_tight();
            assert_eq!(is_tight, milli == Some(500), "{text}");
        }
        write("cpu.cfs_period_us", "100000\n");
        for (text, milli) in [("-1\n", None), ("100000\n", Some(1000))] {
            write("cpu.cfs_quota_us", text);
            assert_eq!(group(false).read(), Limit { milli, throttled: 3 });
        }
    }
}
