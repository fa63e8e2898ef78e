//! A config out of several sources: files, the environment, flags; a later one before an earlier one.

use std::path::PathBuf;

use figment::error::Kind;
use figment::providers::{Env, Serialized};
use figment::value::{Dict, Value};
use figment::{Figment, Profile};
use tollfree::gateway::read_file;

use super::places::{line_at, line_of, line_of_all};
use super::registers::{Origins, path_of};
use super::{Config, checks};

/// Environment variables that say something begin so; `__` stands between the parts of a key.
const PREFIX: &str = "TOLLFREE_GATEWAY_";
/// Errors of one config that are told; those behind them are found when these are mended.
const ERRORS_MAX: usize = 100;
/// The longest file that is read, in bytes.
const LEN_MAX: u64 = 4 << 20;

/// Where a part of a config comes from.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Source {
    /// A TOML file.
    File(PathBuf),
    /// The text of one, and what to call it in errors.
    Text {
        /// For errors.
        name: String,
        /// TOML.
        text: String,
    },
    /// The process's environment: `TOLLFREE_GATEWAY_LIMITS__STREAMS=64`.
    Environment,
    /// A flag: a key such as `limits.streams`, and its value.
    Flag {
        /// The key.
        key: String,
        /// The value.
        value: String,
    },
}

/// Why there is no config: where it was said, what, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}{key}: {problem}", key = .key)]
#[non_exhaustive]
pub struct ConfigError {
    /// File and line, a variable, or a flag; ends in ": " where there is one.
    pub place: String,
    /// The key.
    pub key: String,
    /// What is wrong, and what to do.
    pub problem: String,
}

/// All that is wrong with a config, one on a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    /// Each, in the order in which they were found. There is one at least.
    pub fn errors(&self) -> &[ConfigError] {
        &self.0
    }
}

impl From<ConfigError> for ConfigErrors {
    fn from(error: ConfigError) -> ConfigErrors {
        ConfigErrors(vec![error])
    }
}

impl std::error::Error for ConfigErrors {}

impl std::fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (nth, error) in self.0.iter().enumerate() {
            let line = if nth == 0 { "" } else { "\n" };
            write!(f, "{line}{error}")?;
        }
        Ok(())
    }
}

/// The sources' texts, to find lines in.
struct Texts(Vec<(String, String)>);

impl Texts {
    /// Where a key was said.
    fn place(&self, source: Option<&str>, path: &[String]) -> String {
        let environment = variable(path);
        match source {
            Some(name) if name.starts_with("--set ") => return format!("{name}: "),
            _ if std::env::var_os(&environment).is_some() => return format!("{environment}: "),
            _ => {}
        }
        let found = self.0.iter().rev().find_map(|(name, text)| Some((name, line_of(text, path)?)));
        match (found, self.0.last()) {
            (Some((name, line)), _) => format!("{name}:{line}: "),
            (None, Some((name, _))) => format!("{name}: "),
            (None, None) => String::new(),
        }
    }
}

/// The variable that would say a key.
fn variable(path: &[String]) -> String {
    format!("{PREFIX}{}", path.join("__").to_ascii_uppercase())
}

/// The last source that says a key, in words.
fn origin(sources: &[Source], texts: &Texts, path: &[String]) -> Option<String> {
    let whole = path.join(".");
    let mut texts = texts.0.iter().rev();
    sources.iter().rev().find_map(|source| match source {
        Source::Flag { key, .. } => (*key == whole).then(|| format!("--set {key}")),
        Source::Environment => Some(variable(path)).filter(|name| std::env::var_os(name).is_some()),
        Source::File(_) | Source::Text { .. } => {
            let (name, text) = texts.next()?;
            Some(format!("{name}:{}", line_of_all(text, path)?))
        }
    })
}

pub(super) fn read(sources: &[Source]) -> Result<Config, ConfigErrors> {
    let mut texts = Texts(Vec::new());
    let mut figment = Figment::new();
    for source in sources {
        figment = match source {
            Source::File(path) => {
                let name = path.display().to_string();
                let bytes = read_file(path, LEN_MAX).map_err(|error| whole_file(&name, error.to_string()))?;
                let text = String::from_utf8(bytes)
                    .map_err(|error| whole_file(&name, format!("is no text: {error}")))?;
                with_text(figment, name, text, &mut texts)?
            }
            Source::Text { name, text } => with_text(figment, name.clone(), text.clone(), &mut texts)?,
            // That is for programs that attach.
            Source::Environment => figment.merge(Env::prefixed(PREFIX).ignore(&["user"]).split("__")),
            Source::Flag { key, value } => {
                // Never fails: what is no number, list or table is a text.
                let value: Value = value.parse().unwrap_or_else(|never| match never {});
                let provider = Serialized::from(value, Profile::Default).key(key);
                figment.merge(Named { name: format!("--set {key}"), inner: provider })
            }
        };
    }
    let (mut config, mut wrong) = extract(&figment);
    let known: Vec<Vec<String>> = wrong.iter().map(|explained| explained.path.clone()).collect();
    // What follows from one mistake is not another.
    let is_new =
        |path: &[String]| !known.iter().any(|known| known.starts_with(path) || path.starts_with(known));
    wrong.extend(checks::check(&config).into_iter().filter(|complaint| is_new(&complaint.path)).map(
        |complaint| Explained {
            key: complaint.path.join("."),
            path: complaint.path,
            problem: complaint.problem,
        },
    ));
    if !wrong.is_empty() {
        let error = |Explained { path, key, problem }| {
            let place = origin(sources, &texts, &path).map(|place| format!("{place}: "));
            ConfigError { place: place.unwrap_or_else(|| texts.place(None, &path)), key, problem }
        };
        return Err(ConfigErrors(wrong.into_iter().map(error).collect()));
    }
    let said: Dict = figment.extract().unwrap_or_default();
    let mut places = Origins::default();
    note_places(&said, &mut Vec::new(), &mut |path| {
        if let Some(place) = origin(sources, &texts, path) {
            places.0.insert(path.join("."), place);
        }
    });
    config.stands_at(places);
    for register in config.registers() {
        if let Some(origin) = origin(sources, &texts, &path_of(&register.name)) {
            config.origins.0.insert(register.name, origin);
        }
    }
    Ok(config)
}

/// Each key that was said, those of tables too.
fn note_places(said: &Dict, path: &mut Vec<String>, note: &mut dyn FnMut(&[String])) {
    for (key, value) in said {
        path.push(key.clone());
        note(path);
        if let Value::Dict(_, inner) = value {
            note_places(inner, path, note);
        }
        path.pop();
    }
}

/// The config without what can't be read of it, and what that is.
fn extract(figment: &Figment) -> (Config, Vec<Explained>) {
    let mut wrong = Vec::new();
    let mut said: Dict = match figment.extract() {
        Ok(said) => said,
        Err(error) => return (Config::default(), vec![explained(&error)]),
    };
    loop {
        match Figment::from(Serialized::defaults(&said)).extract() {
            Ok(config) => return (config, wrong),
            Err(error) => {
                let explained = explained(&error);
                let is_removed = wrong.len() < ERRORS_MAX && remove(&mut said, &explained.path);
                wrong.push(explained);
                if !is_removed {
                    return (Config::default(), wrong);
                }
            }
        }
    }
}

/// Removes the longest part of a path that is there.
fn remove(said: &mut Dict, path: &[String]) -> bool {
    let Some((first, rest)) = path.split_first() else { return false };
    if let Some(Value::Dict(_, inner)) = said.get_mut(first)
        && !rest.is_empty()
        && remove(inner, rest)
    {
        return true;
    }
    said.remove(first).is_some()
}

fn whole_file(name: &str, problem: String) -> ConfigError {
    ConfigError { place: String::new(), key: name.into(), problem }
}

fn with_text(
    figment: Figment,
    name: String,
    text: String,
    texts: &mut Texts,
) -> Result<Figment, ConfigError> {
    let table: toml::Table = toml::from_str(&text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_at(&text, span.start));
        whole_file(&format!("{name}:{line}"), format!("no TOML: {}", error.message()))
    })?;
    texts.0.push((name, text));
    Ok(figment.merge(Serialized::defaults(table)))
}

/// A source with a name of its own in errors.
struct Named<P> {
    name: String,
    inner: P,
}

impl<P: figment::Provider> figment::Provider for Named<P> {
    fn metadata(&self) -> figment::Metadata {
        figment::Metadata::named(self.name.clone())
    }

    fn data(&self) -> figment::error::Result<figment::value::Map<Profile, figment::value::Dict>> {
        self.inner.data()
    }
}

/// What is wrong with a config, in words.
pub(super) struct Explained {
    path: Vec<String>,
    pub(super) key: String,
    pub(super) problem: String,
}

pub(super) fn explained(error: &figment::Error) -> Explained {
    let mut path = error.path.clone();
    let problem = match &error.kind {
        Kind::UnknownField(name, known) => {
            if path.last() != Some(name) {
                path.push(name.clone());
            }
            format!("there is no such key; known are {}", known.join(", "))
        }
        Kind::MissingField(name) => {
            path.push(name.to_string());
            "is missing".into()
        }
        kind => kind.to_string(),
    };
    Explained { key: path.join("."), path, problem }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{LoadBalancing, Policy};

    fn of(text: &str, flags: &[(&str, &str)]) -> Result<Config, ConfigErrors> {
        let mut sources = vec![Source::Text { name: "s.toml".into(), text: text.into() }];
        sources.extend(
            flags.iter().map(|(key, value)| Source::Flag { key: (*key).into(), value: (*value).into() }),
        );
        read(&sources)
    }

    #[test]
    fn flags_come_before_the_file_and_the_file_before_defaults() {
        let config = of("[limits]\nstreams = 7\nconnections = 8\n", &[("limits.streams", "9")]).unwrap();
        assert_eq!((config.limits.streams, config.limits.connections), (9, 8));
        assert_eq!(config.limits.message_bytes, 4 << 20);
        let config = of("", &[("backends.wait", "low-latency")]).unwrap();
        assert_eq!(config.backends.wait, crate::Wait::LowLatency);
        let listener = of("", &[("listeners.a.address", "unix:/run/x.sock")]).unwrap().listeners["a"].clone();
        assert_eq!(listener.address, "unix:/run/x.sock");
    }

    #[test]
    fn a_group_balances_as_all_do_but_for_what_it_says() {
        let text = "[load_balancing]\npolicy = \"affinity\"\ndepth = 3\n[groups.g.load_balancing]\npolicy = \"static\"\nwaiting = 7\n[groups.h]\n";
        let config = of(text, &[("groups.h.load_balancing.depth", "0")]).unwrap();
        let all = LoadBalancing { policy: Policy::Affinity, depth: 3, ..LoadBalancing::default() };
        assert_eq!(
            config.load_balancing_of("g"),
            LoadBalancing { policy: Policy::Static, waiting: 7, ..all }
        );
        assert_eq!(config.load_balancing_of("h"), LoadBalancing { depth: 0, ..all });
        assert_eq!(config.load_balancing_of("other"), all);
    }

    #[test]
    fn the_effective_config_can_be_read_again() {
        let text = "[listeners.a]\naddress = \"127.0.0.1:0\"\n[groups.g]\nservices = [\"a.B\"]\n[routes]\n\"a.B/C\" = \"g\"\n";
        let config = of(text, &[]).unwrap();
        assert_eq!(serde_json::from_str::<Config>(&config.to_json()).unwrap(), config);
        assert!(config.to_json().contains("\"idle_ms\": 300000"));
    }

    /// Each bad config, and what its error has to say.
    const BAD: &[(&str, &[&str])] = &[
        ("[limits]\nstraems = 1\n", &["s.toml:2: limits.straems", "streams"]),
        ("[limits]\n\nstreams = \"many\"\n", &["s.toml:3: limits.streams", "many"]),
        ("[limits]\nstreams = -1\n", &["s.toml:2: limits.streams", "-1"]),
        ("[limits]\nstreams = 0\n", &["s.toml:2: limits.streams", "at least 1"]),
        ("[profile]\nring_bytes = 5000\n", &["s.toml:2: profile.ring_bytes", "4096"]),
        ("[profile]\nring_bytes = 65536\n", &["s.toml:2: profile.ring_bytes", "32768"]),
        ("[profile]\narea_bytes = 1\n", &["s.toml:2: profile.area_bytes", "65536"]),
        ("[profile]\nthreads = 9999\n", &["s.toml:2: profile.threads", "1024"]),
        ("[device]\nbatch = 65\n", &["s.toml:2: device.batch", "1 to 64"]),
        ("[groups.g.device]\ndoorbell = \"ring\"\n", &["s.toml:2: groups.g.device.doorbell", "coherent:N"]),
        ("[groups.g.device]\nhold_us = 10001\n", &["s.toml:2: groups.g.device.hold_us", "10000"]),
        ("[limits]\nmessage_bytes = 0\n", &["s.toml:2: limits.message_bytes", "at least 1"]),
        ("[backends]\nwait = \"never\"\n", &["s.toml:2: backends.wait", "never", "low-latency"]),
        ("\n[listners]\n", &["s.toml:2: listners", "listeners"]),
        ("x = \n", &["s.toml:1", "TOML"]),
        ("[listeners.a]\n", &["s.toml:1: listeners.a.address", "missing"]),
        ("[listeners.a]\naddress = \"nowhere\"\n", &["s.toml:2: listeners.a.address", "host:port"]),
        ("[listeners.a]\naddress = \"unix:x\"\n", &["s.toml:2: listeners.a.address", "unix:/"]),
        ("[listeners.a]\naddress = \"systemd:\"\n", &["s.toml:2: listeners.a.address", "systemd:name"]),
        ("[listeners.a]\naddress = \"http://host:1\"\n", &["s.toml:2: listeners.a.address", "without"]),
        (
            "[listeners.a]\naddress = \"a:1\"\ntls.certificate = \"c\"\n",
            &["s.toml:3: listeners.a.tls.key", "missing"],
        ),
        ("[backends]\nsocket = \"/run/x\"\n", &["s.toml:2: backends.socket", "shm:///"]),
        ("[routes]\n\"a.B\" = \"g\"\n[groups.h]\n", &["s.toml:2: routes.a.B", "\"g\""]),
        ("[groups.g]\n[routes]\n\"/a.B/\" = \"g\"\n", &["s.toml:3: routes./a.B/", "acme.v1.Orders"]),
        (
            "[groups.g]\nservices = [\"a.B\"]\n[groups.h]\nservices = [\"a.B\"]\n",
            &["s.toml:4: groups.h.services", "\"g\""],
        ),
        ("[listeners.a]\naddress = \"a:1\"\npolicy = \"p\"\n", &["s.toml:3: listeners.a.policy", "\"p\""]),
        (
            "[policies.p]\n[[policies.p.rules]]\nidentities = []\n",
            &["s.toml:2: policies.p.rules.0.action", "missing"],
        ),
        (
            "[policies.p]\n[[policies.p.rules]]\naction = \"allow\"\n[[policies.p.rules]]\naction = \"allow\"\nidentities = [\"bob\"]\n",
            &["s.toml:6: policies.p.rules.1.identities", "jwt:SUBJECT"],
        ),
        (
            "[policies.p]\nrules = [{ action = \"allow\", addresses = [\"10.0.0.0/33\"] }]\n",
            &["s.toml:2: policies.p.rules.0.addresses", "192.0.2.0/24"],
        ),
        (
            "[policies.p]\nrules = [{ action = \"allow\", claims = { sub = \"a\" } }]\n",
            &["s.toml:2: policies.p.rules.0.claims", "jwt"],
        ),
        (
            "[policies.p]\nrules = [{ action = \"allow\", headers = { X-A = \"a\" } }]\n",
            &["s.toml:2: policies.p.rules.0.headers", "X-A", "small letters"],
        ),
        ("[policies.p]\ngroups = [\"g\"]\n", &["s.toml:2: policies.p.groups", "\"g\""]),
        ("[policies.p]\nmethods = [\"/a\"]\n", &["s.toml:2: policies.p.methods", "acme.v1.Orders"]),
        ("[policies.p]\njwt = [\"i\"]\n", &["s.toml:2: policies.p.jwt", "\"i\""]),
        (
            "[jwt.i]\nissuer = \"x\"\naudiences = [\"a\"]\njwks = \"ftp://host\"\n",
            &["s.toml:4: jwt.i.jwks", "https://host/path"],
        ),
        (
            "[jwt.i]\nissuer = \"x\"\naudiences = [\"a\"]\njwks = \"https://host/k\"\n",
            &["jwt.i.ca", "missing"],
        ),
        (
            "[jwt.i]\nissuer = \"x\"\naudiences = []\njwks = \"/k\"\n",
            &["s.toml:3: jwt.i.audiences", "at least one"],
        ),
        (
            "[policies.p]\nquotas = [{ by = [\"method\"] }]\n",
            &["s.toml:2: policies.p.quotas.0", "calls, concurrent"],
        ),
        (
            "[policies.p]\nquotas = [{ calls = 1, by = [\"name\"] }]\n",
            &["s.toml:2: policies.p.quotas.0.by", "identity"],
        ),
        ("[policies.p]\nquotas = [{ calls = 0 }]\n", &["s.toml:2: policies.p.quotas.0.calls", "at least 1"]),
        (
            "[policies.p]\nquotas = [{ calls = 1, every_ms = 0 }]\n",
            &["s.toml:2: policies.p.quotas.0.every_ms", "86400000"],
        ),
        (
            "[policies.p.headers.request]\nremove = [\"te\"]\nset = { x-a-bin = \"a\" }\n",
            &["s.toml:2: policies.p.headers.request.remove", "\"te\"", "s.toml:3:", "x-a-bin"],
        ),
        (
            "[policies.p.headers]\nrequest.claims = { x-user = \"sub\" }\nanswer.set = { tollfree-x = \"a\" }\n",
            &["s.toml:2: policies.p.headers.request.claims.x-user", "jwt", "s.toml:3:", "tollfree-x"],
        ),
        (
            "[listeners.a]\naddress = \"a:1\"\nproxy_protocol = [\"10.0.0.0\", \"ten\"]\n",
            &["s.toml:3: listeners.a.proxy_protocol", "\"ten\"", "192.0.2.0/24"],
        ),
        (
            "[listeners.a]\naddress = \"unix:/a\"\nforwarded_for = [\"10.0.0.0/8\"]\n",
            &["s.toml:3: listeners.a.forwarded_for", "a path"],
        ),
        ("[[route_rules]]\nmethods = [\"a.B\"]\n", &["s.toml:1: route_rules.0", "groups, mirror"]),
        ("[[route_rules]]\ngroups = { g = 1 }\n", &["s.toml:2: route_rules.0.groups", "\"g\""]),
        (
            "[groups.g]\n[[route_rules]]\ngroups = { g = 0 }\n",
            &["s.toml:3: route_rules.0.groups", "1 to 1000000"],
        ),
        (
            "[groups.g]\n[[route_rules]]\nmirror = { group = \"g\", percent = 101 }\n",
            &["s.toml:3: route_rules.0.mirror.percent", "1 to 100"],
        ),
        (
            "[listeners.a]\naddress = \"a:1\"\ntls = { certificate = \"c\", key = \"k\", crls = [\"l\"] }\n",
            &["s.toml:3: listeners.a.tls.crls", "client_ca"],
        ),
        (
            "[listeners.a]\naddress = \"a:1\"\ntls = { certificate = \"c\", key = \"k\", min_version = \"1.1\" }\n",
            &["s.toml:3: listeners.a.tls.min_version", "1.2"],
        ),
        (
            "[policies.p.ext_authz]\ntarget = \"localhost:1\"\ntimeout_ms = 0\n",
            &["s.toml:2: policies.p.ext_authz.target", "http://host:port", "s.toml:3:", "60000"],
        ),
        (
            "[policies.p.ext_authz]\ntarget = \"https://localhost:1\"\n",
            &["policies.p.ext_authz.ca", "missing"],
        ),
        ("[groups.g]\nvia = [\"inventory\"]\n", &["s.toml:2: groups.g.via", "https://"]),
        ("[groups.g]\nvia = [\"https://localhost:1\"]\n", &["s.toml:2: groups.g.via", "egress.ca"]),
        ("[groups.g]\nvia = [\"group:h\"]\n", &["s.toml:2: groups.g.via", "no such group"]),
        (
            "[load_balancing]\npolicy = \"nearest\"\n",
            &["s.toml:2: load_balancing.policy", "nearest", "affinity"],
        ),
        ("[load_balancing]\nfunctions = 0\n", &["s.toml:2: load_balancing.functions", "1 to 16"]),
        ("[load_balancing]\n\ndepth = -1\n", &["s.toml:3: load_balancing.depth", "-1"]),
        ("[load_balancing]\nwait = 1\n", &["s.toml:2: load_balancing.wait", "waiting"]),
        (
            "[groups.g.load_balancing]\nfunctions = 17\n",
            &["s.toml:2: groups.g.load_balancing.functions", "1 to 16"],
        ),
        ("[groups.g.load_balancing]\npolicy = 1\n", &["s.toml:2: groups.g.load_balancing.policy"]),
        (
            "[groups.g]\n[load_balancing]\nfunctions = 17\n",
            &["s.toml:3: load_balancing.functions", "1 to 16"],
        ),
        ("[metrics]\naddress = \"9090\"\n", &["s.toml:2: metrics.address", "host:port"]),
    ];

    #[test]
    fn errors_name_file_line_and_key() {
        for (text, words) in BAD {
            let error = of(text, &[]).expect_err(text).to_string();
            for word in *words {
                assert!(error.contains(word), "{text:?} gives {error:?}, without {word:?}");
            }
        }
    }

    #[test]
    fn all_errors_are_told_at_once_each_with_its_place() {
        let text = "[limits]\nstraems = 1\nstreams = \"many\"\nidle_ms = 0\n[listeners.a]\n[listeners.b]\naddress = \"x:1\"\n\
                    [listeners.c]\naddress = \"x:1\"\n[groups.g]\nusers = [1, -2]\nvia = [\"inventory\", \"group:h\"]\n[metrics]\naddress = \"x:1\"\n\
                    [egress.targets.\"http://localhost:1\"]\nservice_config = \"{\"\n";
        let errors = of(text, &[("limits.drain_ms", "soon")]).unwrap_err();
        let said: Vec<String> = errors.errors().iter().map(ToString::to_string).collect();
        let wanted = [
            "s.toml:2: limits.straems: there is no such key",
            "s.toml:3: limits.streams: ",
            "s.toml:4: limits.idle_ms: 0 is too little",
            "--set limits.drain_ms: ",
            "s.toml:5: listeners.a.address: is missing",
            "s.toml:9: listeners.c.address: \"x:1\" is the address of listeners.b.address already",
            "s.toml:11: groups.g.users.1: ",
            "s.toml:12: groups.g.via: \"inventory\" is no target",
            "s.toml:12: groups.g.via: \"group:h\"",
            "s.toml:14: metrics.address: \"x:1\" is the address of listeners.c.address already",
            "s.toml:16: egress.targets.http://localhost:1.service_config: ",
        ];
        for wanted in wanted {
            assert!(said.iter().any(|said| said.starts_with(wanted)), "{wanted} is not in {said:#?}");
        }
        assert_eq!(said.len(), wanted.len(), "{said:#?}");
        assert_eq!(errors.to_string().lines().count(), wanted.len());
    }

    #[test]
    fn errors_name_the_flag() {
        let error = of("", &[("limits.streams", "many")]).unwrap_err().to_string();
        assert!(error.starts_with("--set limits.streams: "), "{error}");
    }
}
