//! Which group a call of the world goes to, by the rules of the config.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderMap;
use tokio::sync::Semaphore;

use super::pattern::{HeaderPatterns, has_method};
use crate::config::RouteRule;

/// A rule whose patterns were read.
struct ReadyRoute {
    config: RouteRule,
    headers: HeaderPatterns,
    groups: Vec<(Arc<str>, u32)>,
    mirror: Option<MirrorRule>,
    calls: AtomicU64,
}

struct MirrorRule {
    group: Arc<str>,
    percent: u64,
    places: Arc<Semaphore>,
}

/// Where copies of a call go.
pub(crate) struct MirrorPlace {
    pub(crate) group: Arc<str>,
    /// What bounds how many there are.
    pub(crate) places: Arc<Semaphore>,
}

/// Where a call goes.
#[derive(Default)]
pub(crate) struct Route {
    /// None where methods decide.
    pub(crate) group: Option<Arc<str>>,
    pub(crate) mirror: Option<MirrorPlace>,
}

/// All rules.
#[derive(Default)]
pub(super) struct RouteRules(Vec<ReadyRoute>);

/// Numbers that come in order, spread: each is as likely in each range.
fn spread(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

impl ReadyRoute {
    fn new(rule: &RouteRule) -> Result<ReadyRoute, String> {
        let mirror = rule.mirror.as_ref().map(|mirror| MirrorRule {
            group: mirror.group.as_str().into(),
            percent: mirror.percent.into(),
            places: Arc::new(Semaphore::new(mirror.concurrent as usize)),
        });
        Ok(ReadyRoute {
            config: rule.clone(),
            headers: HeaderPatterns::parse(&rule.headers)?,
            groups: rule.groups.iter().map(|(group, weight)| (group.as_str().into(), *weight)).collect(),
            mirror,
            calls: AtomicU64::new(0),
        })
    }

    fn route(&self) -> Route {
        let chance = spread(self.calls.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let sum: u64 = self.groups.iter().map(|(_, weight)| u64::from(*weight)).sum();
        let mut left = if sum == 0 { 0 } else { chance % sum };
        let group = self.groups.iter().find(|(_, weight)| match left.checked_sub((*weight).into()) {
            None => true,
            Some(rest) => {
                left = rest;
                false
            }
        });
        let mirror = self.mirror.as_ref().filter(|mirror| (chance >> 32) % 100 < mirror.percent);
        Route {
            group: group.map(|(group, _)| group.clone()),
            mirror: mirror
                .map(|mirror| MirrorPlace { group: mirror.group.clone(), places: mirror.places.clone() }),
        }
    }
}

impl RouteRules {
    /// # Errors
    /// A pattern is of no use.
    pub(super) fn new(rules: &[RouteRule]) -> Result<RouteRules, String> {
        rules.iter().map(ReadyRoute::new).collect::<Result<_, _>>().map(RouteRules)
    }

    /// Whether they are what a config would make.
    pub(super) fn are_of(&self, rules: &[RouteRule]) -> bool {
        self.0.iter().map(|rule| &rule.config).eq(rules)
    }

    pub(super) fn route(&self, path: &str, headers: &HeaderMap) -> Route {
        let rule = self
            .0
            .iter()
            .find(|rule| has_method(&rule.config.methods, path) && rule.headers.match_some(headers));
        rule.map_or_else(Route::default, ReadyRoute::route)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_and_shares_are_kept() {
        let rule = RouteRule {
            groups: [("a".to_owned(), 90), ("b".to_owned(), 10), ("c".to_owned(), 0)].into(),
            mirror: Some(crate::config::MirrorConfig { group: "m".into(), percent: 25, concurrent: 1 }),
            ..RouteRule::default()
        };
        let rules = RouteRules::new(&[rule]).unwrap();
        let (mut of_b, mut copied) = (0, 0);
        for _ in 0..10_000 {
            let route = rules.route("x.Y/Z", &HeaderMap::new());
            let group = route.group.unwrap();
            assert_ne!(&*group, "c");
            of_b += u32::from(&*group == "b");
            copied += u32::from(route.mirror.is_some());
        }
        assert!((900..1100).contains(&of_b) && (2350..2650).contains(&copied), "{of_b} {copied}");
    }
}
