//! Values that can be changed one by one while a gateway runs.

use std::collections::BTreeMap;

use figment::providers::Serialized;
use figment::value::{Dict, Value};
use figment::{Figment, Profile};
use serde_json::json;
use tollfree_control::Register;

use super::layers::{ConfigError, explained};
use super::{Config, checks};

/// Where values were said, by key. Configs that say the same are equal, wherever they say it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origins(pub(super) BTreeMap<String, String>);

impl PartialEq for Origins {
    fn eq(&self, _: &Origins) -> bool {
        true
    }
}

impl Eq for Origins {}

/// Keys of a load balancing, and their units.
const LOAD_BALANCING: [(&str, &str); 6] = [
    ("policy", "name"),
    ("functions", "functions"),
    ("imbalance", "calls"),
    ("depth", "calls"),
    ("waiting", "calls"),
    ("hang_ms", "ms"),
];

/// Keys of a device, and their units.
const DEVICE: [(&str, &str); 5] = [
    ("batch", "calls"),
    ("doorbell", "name"),
    ("spin_us", "us"),
    ("hold_us", "us"),
    ("poll_load", "calls/s"),
];

/// Those of them that mean nothing to backend connections of other hosts, who never look.
const MEMORY_ONLY: [&str; 2] = ["spin_us", "poll_load"];

fn unit_of_limit(key: &str) -> &'static str {
    match key {
        _ if key.ends_with("_ms") => "ms",
        _ if key.ends_with("_bytes") => "bytes",
        _ if key.ends_with("_bytes_per_s") => "bytes/s",
        "connections" | "connections_per_address" | "egress_connections" => "connections",
        "egress_targets" => "targets",
        _ => "calls",
    }
}

/// The parts of a register's name.
pub(super) fn path_of(name: &str) -> Vec<String> {
    // A group's name may have dots.
    let own = name.strip_prefix("groups.").and_then(|rest| {
        let (group, key) = rest.rsplit_once('.')?;
        let section = ["load_balancing", "device"]
            .into_iter()
            .find(|section| group.ends_with(&format!(".{section}")))?;
        Some([&group[..group.len() - section.len() - 1], section, key])
    });
    match own {
        Some([group, section, key]) => ["groups", group, section, key].map(str::to_owned).to_vec(),
        None => name.split('.').map(str::to_owned).collect(),
    }
}

impl Config {
    /// All that can be changed while a gateway runs: how calls are balanced and announced, for all groups and for each that is
    /// configured, and limits.
    pub fn registers(&self) -> Vec<Register> {
        let mut registers = Vec::new();
        let mut add = |name: String, value: &serde_json::Value, unit: &str, otherwise: &str| {
            let origin = self.origins.0.get(&name).map_or(otherwise, String::as_str).to_owned();
            let engine = name
                .rsplit_once("device.")
                .and_then(|(_, key)| MEMORY_ONLY.contains(&key).then(|| "memory".into()));
            registers.push(Register { name, value: value.clone(), unit: unit.to_owned(), engine, origin });
        };
        let of_groups = |group: &String| {
            (group.clone(), json!(self.load_balancing_of(group)), json!(self.device_of(group)))
        };
        let (all, groups) =
            ((json!(self.load_balancing), json!(self.device)), self.groups.keys().map(of_groups));
        let groups: Vec<_> = groups.collect();
        for (key, unit) in LOAD_BALANCING {
            add(format!("load_balancing.{key}"), &all.0[key], unit, "default");
        }
        for (key, unit) in DEVICE {
            add(format!("device.{key}"), &all.1[key], unit, "default");
        }
        for (group, load_balancing, device) in groups {
            for (key, unit) in LOAD_BALANCING {
                let name = format!("groups.{group}.load_balancing.{key}");
                add(name, &load_balancing[key], unit, &format!("load_balancing.{key}"));
            }
            for (key, unit) in DEVICE {
                let name = format!("groups.{group}.device.{key}");
                add(name, &device[key], unit, &format!("device.{key}"));
            }
        }
        for (key, value) in json!(self.limits).as_object().into_iter().flatten() {
            add(format!("limits.{key}"), value, unit_of_limit(key), "default");
        }
        registers
    }

    /// This config with another value of a register.
    pub(crate) fn with(&self, name: &str, value: &str) -> Result<Config, ConfigError> {
        let wrong =
            |key: &str, problem: String| ConfigError { place: "ctl: ".into(), key: key.into(), problem };
        if !self.registers().iter().any(|register| register.name == name) {
            let problem = "can't be changed while the gateway runs; `tollfree ctl show` names what can";
            return Err(wrong(name, problem.into()));
        }
        let path = path_of(name);
        // Never fails: what is no number, list or table is a text.
        let value: Value = value.parse().unwrap_or_else(|never| match never {});
        let said =
            path.iter().rev().fold(value, |inner, key| Value::from(Dict::from([(key.clone(), inner)])));
        let figment =
            Figment::from(Serialized::defaults(self)).merge(Serialized::from(said, Profile::Default));
        let mut config: Config = figment.extract().map_err(|error| {
            let explained = explained(&error);
            wrong(&explained.key, explained.problem)
        })?;
        if let Some(complaint) = checks::check(&config).into_iter().next() {
            return Err(wrong(&complaint.path.join("."), complaint.problem));
        }
        config.origins = self.origins.clone();
        config.origins.0.insert(name.to_owned(), "ctl".into());
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Policy, Source};

    fn read(text: &str) -> Config {
        let flag = Source::Flag { key: "load_balancing.depth".into(), value: "9".into() };
        Config::read(&[Source::Text { name: "s.toml".into(), text: text.into() }, flag]).unwrap()
    }

    fn of(config: &Config, name: &str) -> (String, String, String) {
        let all = config.registers();
        let register = all.iter().find(|register| register.name == name).unwrap();
        (register.value.to_string(), register.unit.clone(), register.origin.clone())
    }

    fn words(value: &str, unit: &str, origin: &str) -> (String, String, String) {
        (value.into(), unit.into(), origin.into())
    }

    #[test]
    fn registers_say_where_their_value_comes_from() {
        let text = "[limits]\nstreams = 7\n[load_balancing]\ndepth = 1\n[groups.\"a.b\"]\nload_balancing.policy = \"static\"\n";
        let mut config = read(text);
        assert_eq!(of(&config, "limits.streams"), words("7", "calls", "s.toml:2"));
        assert_eq!(of(&config, "limits.idle_ms"), words("300000", "ms", "default"));
        assert_eq!(of(&config, "load_balancing.depth"), words("9", "calls", "--set load_balancing.depth"));
        assert_eq!(of(&config, "groups.a.b.load_balancing.policy"), words("\"static\"", "name", "s.toml:6"));
        assert_eq!(
            of(&config, "groups.a.b.load_balancing.depth"),
            words("9", "calls", "load_balancing.depth")
        );

        for (name, value) in [
            ("groups.a.b.load_balancing.depth", "3"),
            ("load_balancing.policy", "affinity"),
            ("limits.idle_ms", "5"),
        ] {
            config = config.with(name, value).unwrap();
        }
        assert_eq!(of(&config, "groups.a.b.load_balancing.depth"), words("3", "calls", "ctl"));
        assert_eq!(of(&config, "limits.idle_ms"), words("5", "ms", "ctl"));
        assert_eq!(of(&config, "limits.streams"), words("7", "calls", "s.toml:2"));
        let (all, own) = (config.load_balancing, config.load_balancing_of("a.b"));
        assert_eq!((all.policy, own.policy, all.depth, own.depth), (Policy::Affinity, Policy::Static, 9, 3));
    }

    #[test]
    fn a_group_waits_as_all_do_unless_it_says_otherwise() {
        let text = "device.batch = 8\ndevice.doorbell = \"coherent:4\"\n[groups.\"a.device.b\"]\ndevice.doorbell = \"inline\"\n";
        let mut config = read(text);
        assert_eq!(of(&config, "device.batch"), words("8", "calls", "s.toml:1"));
        assert_eq!(of(&config, "groups.a.device.b.device.batch"), words("8", "calls", "device.batch"));
        assert_eq!(of(&config, "groups.a.device.b.device.doorbell"), words("\"inline\"", "name", "s.toml:4"));
        for (name, value) in [
            ("groups.a.device.b.device.batch", "auto"),
            ("device.doorbell", "doorbell-batch:11"),
            ("device.spin_us", "20"),
        ] {
            config = config.with(name, value).unwrap();
        }
        assert_eq!(of(&config, "groups.a.device.b.device.batch"), words("\"auto\"", "calls", "ctl"));
        let (all, own) = (config.device, config.device_of("a.device.b"));
        assert_eq!([all.doorbell.0.to_string(), own.doorbell.0.to_string()], ["doorbell-batch:11", "inline"]);
        assert_eq!([all.spin_us.0.to_string(), own.spin_us.0.to_string()], ["20", "20"]);
    }

    #[test]
    fn each_register_takes_its_own_value_again() {
        let mut config = read("[groups.g]\n");
        for register in config.registers() {
            let value = register.value.as_str().map_or_else(|| register.value.to_string(), str::to_owned);
            let same = config.with(&register.name, &value).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(of(&same, &register.name).2, "ctl");
            assert_eq!(
                (&same.limits, same.load_balancing_of("g")),
                (&config.limits, config.load_balancing_of("g"))
            );
            assert_eq!(same.device_of("g"), config.device_of("g"));
            config = same;
        }
    }

    #[test]
    fn nonsense_is_refused_in_words() {
        let config = read("[groups.g]\n");
        for (name, value, expected) in [
            ("load_balancing.policy", "nearest", &["load_balancing.policy", "nearest", "round_robin"][..]),
            ("load_balancing.functions", "0", &["load_balancing.functions", "1 to 16"]),
            ("load_balancing.depth", "-1", &["load_balancing.depth", "-1"]),
            ("load_balancing.depth", "many", &["load_balancing.depth", "many"]),
            ("groups.g.load_balancing.functions", "17", &["groups.g.load_balancing.functions", "1 to 16"]),
            (
                "groups.h.load_balancing.depth",
                "1",
                &["groups.h.load_balancing.depth", "can't be changed", "ctl show"],
            ),
            ("limits.streams", "0", &["limits.streams", "at least 1"]),
            ("backends.wait", "low-latency", &["backends.wait", "can't be changed"]),
            ("device.batch", "0", &["device.batch", "\"0\"", "1 to 64"]),
            ("device.batch", "65", &["device.batch", "1 to 64"]),
            ("device.batch", "-1", &["device.batch", "1 to 64"]),
            ("device.batch", "1.5", &["device.batch"]),
            ("device.doorbell", "bell", &["device.doorbell", "\"bell\"", "coherent:N"]),
            ("device.doorbell", "coherent:0", &["device.doorbell", "1 to 64"]),
            ("device.spin_us", "forever", &["device.spin_us", "1000000"]),
            ("device.spin_us", "1000001", &["device.spin_us", "1000000"]),
            ("device.hold_us", "10001", &["device.hold_us", "10000"]),
            ("device.hold_us", "-1", &["device.hold_us"]),
            ("device.poll_load", "many", &["device.poll_load", "many"]),
            ("groups.g.device.doorbell", "doorbell-batch:65", &["groups.g.device.doorbell", "1 to 64"]),
            ("groups.h.device.batch", "1", &["groups.h.device.batch", "can't be changed"]),
            ("listeners.a.address", "127.0.0.1:1", &["can't be changed"]),
        ] {
            let error = config.with(name, value).expect_err(name).to_string();
            for word in expected {
                assert!(error.starts_with("ctl: ") && error.contains(word), "{error:?} without {word:?}");
            }
        }
    }
}
