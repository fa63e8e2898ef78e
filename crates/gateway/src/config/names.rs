//! Users and groups of this host in a config, by name or number, and modes of files.

use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tollfree::gateway::{group_number, user_number};

/// The number of a group of users, which a config may say by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(with = "super::schema::WordOrNumber"))]
pub struct UserGroup(pub u32);

impl<'de> Deserialize<'de> for UserGroup {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<UserGroup, D::Error> {
        deserializer.deserialize_any(NameVisitor { what: "group", number: group_number }).map(UserGroup)
    }
}

/// The mode of a file, which a config says as a text of octal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(with = "String"))]
pub struct FileMode(pub u32);

impl Serialize for FileMode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("{:04o}", self.0))
    }
}

impl<'de> Deserialize<'de> for FileMode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<FileMode, D::Error> {
        let text = String::deserialize(deserializer)?;
        let mode = u32::from_str_radix(&text, 8).ok().filter(|mode| *mode <= 0o777);
        mode.map(FileMode).ok_or_else(|| {
            D::Error::custom(format!("\"{text}\" is no mode: write a text of octal digits, such as \"0660\""))
        })
    }
}

/// Reads one name or number.
struct NameVisitor {
    what: &'static str,
    number: fn(&str) -> std::io::Result<Option<u32>>,
}

impl Visitor<'_> for NameVisitor {
    type Value = u32;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the name or number of a {}", self.what)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<u32, E> {
        u32::try_from(number).map_err(|_| E::custom(format!("{number} is no number of a {}", self.what)))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<u32, E> {
        u32::try_from(number).map_err(|_| E::custom(format!("{number} is no number of a {}", self.what)))
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<u32, E> {
        if let Ok(number) = name.parse() {
            return Ok(number);
        }
        match (self.number)(name) {
            Ok(Some(number)) => Ok(number),
            Ok(None) => Err(E::custom(format!("there is no {} \"{name}\" on this host", self.what))),
            Err(error) => Err(E::custom(format!("the {} \"{name}\" can't be looked up: {error}", self.what))),
        }
    }
}

/// Reads users, each by name or number.
pub(super) fn users<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u32>, D::Error> {
    struct User(u32);
    impl<'de> Deserialize<'de> for User {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<User, D::Error> {
            deserializer.deserialize_any(NameVisitor { what: "user", number: user_number }).map(User)
        }
    }
    let users = Vec::<User>::deserialize(deserializer)?;
    Ok(users.into_iter().map(|user| user.0).collect())
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    #[test]
    fn users_and_groups_go_by_name_or_number() {
        let text =
            "backends.mode = \"0660\"\nbackends.group = \"root\"\n[groups.g]\nusers = [7, \"root\", \"8\"]\n";
        let config = Config::from_toml(text).unwrap();
        assert_eq!(config.groups["g"].users, [7, 0, 8]);
        assert_eq!((config.backends.mode.unwrap().0, config.backends.group.unwrap().0), (0o660, 0));
        assert_eq!(serde_json::from_str::<Config>(&config.to_json()).unwrap(), config);
        for (text, words) in [
            ("[groups.g]\nusers = [\"no-such-name\"]\n", "no user \"no-such-name\""),
            ("[groups.g]\nusers = [-1]\n", "-1"),
            ("[groups.g]\nusers = [true]\n", "name or number of a user"),
            ("[backends]\ngroup = \"no-such-name\"\n", "no group \"no-such-name\""),
            ("[backends]\nmode = \"0999\"\n", "octal"),
            ("[backends]\nmode = \"1777\"\n", "octal"),
            ("[backends]\nmode = 432\n", "mode"),
        ] {
            let error = Config::from_toml(text).expect_err(text).to_string();
            assert!(error.starts_with("gateway.toml:2: ") && error.contains(words), "{error}");
        }
    }
}
