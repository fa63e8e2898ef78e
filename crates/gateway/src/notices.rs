//! Lines of the log that backends cause as often as they like: so many for each group, and how many were left out.

use std::collections::HashMap;

use parking_lot::Mutex;
use tollfree::gateway::RateLimitedLog;

use crate::config::Config;

/// One kind of line. A group that causes many takes no line from another group.
#[derive(Default)]
pub(crate) struct Notices {
    by_group: Mutex<HashMap<String, RateLimitedLog>>,
    /// Names that the config doesn't have: any process can make up as many as it likes.
    unnamed: RateLimitedLog,
}

impl Notices {
    /// Whether a line about a group is written this time; if so, how many of its lines were not since the last one.
    pub(crate) fn turn(&self, config: &Config, group: &str) -> Option<u64> {
        if !config.groups.contains_key(group) {
            return self.unnamed.turn();
        }
        let mut by_group = self.by_group.lock();
        if !by_group.contains_key(group) {
            by_group.retain(|name, _| config.groups.contains_key(name));
        }
        by_group.entry(group.to_owned()).or_default().turn()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_takes_no_line_from_another_and_made_up_names_share_theirs() {
        let config = Config::from_toml("[groups.loud]\n[groups.calm]\n").unwrap();
        let notices = Notices::default();
        let written = |group: &str| notices.turn(&config, group).is_some();
        let loud = (0..1000).filter(|_| written("loud")).count();
        assert!((1..=20).contains(&loud), "{loud} lines");
        assert!(written("calm"));
        let made_up = (0..1000).filter(|name| written(&format!("group {name}"))).count();
        assert!((1..=20).contains(&made_up), "{made_up} lines");
        assert_eq!(notices.by_group.lock().len(), 2, "made-up names are not kept");
    }
}
