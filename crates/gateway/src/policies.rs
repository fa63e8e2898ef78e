//! The service configs of groups: timeouts, retries, and when backends are ejected.

use std::collections::BTreeMap;
use std::sync::Arc;

use tollfree::gateway::CallRules;

use crate::config::Config;

/// One service config, and what it says.
#[derive(Clone)]
struct Said {
    json: Arc<str>,
    rules: Arc<CallRules>,
}

/// Those of all groups. A change makes a new one.
#[derive(Clone, Default)]
pub(crate) struct Policies {
    /// Of groups that the config does not name.
    others: Option<Said>,
    by_group: BTreeMap<String, Said>,
}

impl Policies {
    /// As a config says, which was checked. What is as before keeps what it knows of failures.
    pub(crate) fn of(config: &Config, before: &Policies) -> Policies {
        let all = config.backends.service_config.as_deref();
        let said = |json: &str, before: Option<&Said>| match before.filter(|before| *before.json == *json) {
            Some(before) => Some(before.clone()),
            None => Some(Said { json: json.into(), rules: Arc::new(CallRules::parse(json).ok()?) }),
        };
        let by_group = config.groups.iter().filter_map(|(name, group)| {
            let json = group.service_config.as_deref().or(all)?;
            Some((name.clone(), said(json, before.by_group.get(name))?))
        });
        Policies {
            by_group: by_group.collect(),
            others: all.and_then(|json| said(json, before.others.as_ref())),
        }
    }

    /// Whether nothing is said of any call.
    pub(crate) fn are_none(&self) -> bool {
        self.others.is_none() && self.by_group.is_empty()
    }

    /// What holds for a group's calls.
    pub(crate) fn of_group(&self, group: Option<&str>) -> Option<&Arc<CallRules>> {
        let own = group.and_then(|group| self.by_group.get(group));
        own.or(self.others.as_ref()).map(|said| &said.rules)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn timeout(policies: &Policies, group: Option<&str>) -> Option<Duration> {
        policies.of_group(group).and_then(|rules| rules.timeout("/x.A/B"))
    }

    #[test]
    fn a_group_has_its_own_or_that_of_all() {
        let of =
            |seconds: u32| format!(r#"'{{"methodConfig": [{{"name": [{{}}], "timeout": "{seconds}s"}}]}}'"#);
        let text = format!(
            "backends.service_config = {}\n[groups.a]\nservice_config = {}\n[groups.b]\n",
            of(1),
            of(2)
        );
        let config = Config::from_toml(&text).unwrap();
        let policies = Policies::of(&config, &Policies::default());
        let seconds = |group| timeout(&policies, group).map(|time| time.as_secs());
        assert_eq!([seconds(Some("a")), seconds(Some("b")), seconds(None)], [Some(2), Some(1), Some(1)]);
        let rules = |policies: &Policies, group| policies.of_group(Some(group)).unwrap().clone();
        assert!(
            !Arc::ptr_eq(&rules(&policies, "b"), policies.of_group(None).unwrap()),
            "one throttle for each group"
        );
        let changed = Config::from_toml(&text.replace("\"2s\"", "\"3s\"")).unwrap();
        let changed = Policies::of(&changed, &policies);
        assert!(Arc::ptr_eq(&rules(&policies, "b"), &rules(&changed, "b")), "what is as before stays");
        assert_eq!(timeout(&changed, Some("a")), Some(Duration::from_secs(3)));
        assert!(Policies::of(&Config::default(), &changed).of_group(Some("a")).is_none());
    }
}
