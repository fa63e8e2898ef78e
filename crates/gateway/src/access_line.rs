//! One line of the access log: what is known of a call that has ended, as JSON or by a template.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tollfree::gateway::status_name;
use tonic::Code;

/// What is known of a call.
#[derive(Debug)]
pub(crate) struct AccessEntry {
    /// When it began.
    pub(crate) time: SystemTime,
    pub(crate) duration: Duration,
    /// As `acme.v1.Orders/Get`.
    pub(crate) method: String,
    pub(crate) code: Code,
    /// Its client's address.
    pub(crate) client: String,
    /// The subject of its client's certificate; empty without one.
    pub(crate) subject: String,
    /// The name that its caller goes by in its listener's policy; empty without one.
    pub(crate) identity: String,
    /// Empty where no group was found.
    pub(crate) group: String,
    /// Process and number of the backend connection that answered; empty where none did.
    pub(crate) backend: String,
    pub(crate) request_bytes: u64,
    pub(crate) answer_bytes: u64,
    /// What the client calls itself.
    pub(crate) user_agent: String,
    /// Its `traceparent`, with which its span is found.
    pub(crate) trace: String,
}

/// A field of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Time,
    DurationMs,
    Method,
    Status,
    Client,
    Subject,
    Identity,
    Group,
    Backend,
    RequestBytes,
    AnswerBytes,
    UserAgent,
    Trace,
}

impl Field {
    const ALL: [Field; 13] = [
        Field::Time,
        Field::DurationMs,
        Field::Method,
        Field::Status,
        Field::Client,
        Field::Subject,
        Field::Identity,
        Field::Group,
        Field::Backend,
        Field::RequestBytes,
        Field::AnswerBytes,
        Field::UserAgent,
        Field::Trace,
    ];

    fn name(self) -> &'static str {
        match self {
            Field::Time => "time",
            Field::DurationMs => "duration_ms",
            Field::Method => "method",
            Field::Status => "status",
            Field::Client => "client",
            Field::Subject => "subject",
            Field::Identity => "identity",
            Field::Group => "group",
            Field::Backend => "backend",
            Field::RequestBytes => "request_bytes",
            Field::AnswerBytes => "answer_bytes",
            Field::UserAgent => "user_agent",
            Field::Trace => "trace",
        }
    }
}

/// A value of a field.
enum Shown<'e> {
    Text(&'e str),
    Owned(String),
    Number(u64),
    Milliseconds(f64),
}

impl AccessEntry {
    fn shown(&self, field: Field) -> Shown<'_> {
        match field {
            Field::Time => {
                let time = OffsetDateTime::from(self.time);
                Shown::Owned(time.format(&Rfc3339).unwrap_or_default())
            }
            Field::DurationMs => Shown::Milliseconds(self.duration.as_secs_f64() * 1000.0),
            Field::Method => Shown::Text(&self.method),
            Field::Status => Shown::Text(status_name(self.code)),
            Field::Client => Shown::Text(&self.client),
            Field::Subject => Shown::Text(&self.subject),
            Field::Identity => Shown::Text(&self.identity),
            Field::Group => Shown::Text(&self.group),
            Field::Backend => Shown::Text(&self.backend),
            Field::RequestBytes => Shown::Number(self.request_bytes),
            Field::AnswerBytes => Shown::Number(self.answer_bytes),
            Field::UserAgent => Shown::Text(&self.user_agent),
            Field::Trace => Shown::Text(&self.trace),
        }
    }

    /// All fields, as an object of JSON.
    pub(crate) fn write_json(&self, line: &mut String) {
        for (nth, field) in Field::ALL.into_iter().enumerate() {
            line.push(if nth == 0 { '{' } else { ',' });
            _ = write!(line, "\"{}\":", field.name());
            match self.shown(field) {
                Shown::Text(text) => line.push_str(&quoted(text)),
                Shown::Owned(text) => line.push_str(&quoted(&text)),
                Shown::Number(number) => _ = write!(line, "{number}"),
                Shown::Milliseconds(ms) => _ = write!(line, "{ms:.3}"),
            }
        }
        line.push('}');
    }
}

/// A text in JSON's quotes.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A line with fields in it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Template(Vec<Part>);

#[derive(Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Field(Field),
}

impl Template {
    /// Reads a template: fields stand in braces, `{{` and `}}` are braces.
    ///
    /// # Errors
    /// What is no field, or no end of one.
    pub(crate) fn parse(text: &str) -> Result<Template, String> {
        let (mut parts, mut plain) = (Vec::new(), String::new());
        let mut letters = text.chars().peekable();
        while let Some(letter) = letters.next() {
            match letter {
                '{' | '}' if letters.peek() == Some(&letter) => {
                    letters.next();
                    plain.push(letter);
                }
                '}' => return Err("has a } without a field before it: write }} for a brace".into()),
                '{' => {
                    let mut name = String::new();
                    loop {
                        match letters.next() {
                            Some('}') => break,
                            Some(letter) => name.push(letter),
                            None => return Err(format!("has no }} behind {{{name}")),
                        }
                    }
                    let field = Field::ALL.into_iter().find(|field| field.name() == name);
                    let field = field.ok_or_else(|| {
                        let known: Vec<_> = Field::ALL.into_iter().map(Field::name).collect();
                        format!("has no field {name}: known are {}", known.join(", "))
                    })?;
                    parts.push(Part::Text(std::mem::take(&mut plain)));
                    parts.push(Part::Field(field));
                }
                letter if letter.is_control() => {
                    return Err("has a control character, and a line can't have any".into());
                }
                letter => plain.push(letter),
            }
        }
        parts.push(Part::Text(plain));
        Ok(Template(parts))
    }

    /// A call's line. What clients say is written without control characters and in quotes where it has any but plain letters.
    pub(crate) fn write(&self, entry: &AccessEntry, line: &mut String) {
        for part in &self.0 {
            match part {
                Part::Text(text) => line.push_str(text),
                Part::Field(field) => match entry.shown(*field) {
                    Shown::Text("") => line.push('-'),
                    Shown::Text(text) if text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"') => {
                        line.push_str(text);
                    }
                    Shown::Text(text) => line.push_str(&quoted(text)),
                    Shown::Owned(text) => line.push_str(&text),
                    Shown::Number(number) => _ = write!(line, "{number}"),
                    Shown::Milliseconds(ms) => _ = write!(line, "{ms:.3}"),
                },
            }
        }
    }
}

#[cfg(test)]
impl AccessEntry {
    pub(crate) fn for_test() -> AccessEntry {
        AccessEntry {
            time: SystemTime::UNIX_EPOCH + Duration::from_millis(1500),
            duration: Duration::from_micros(2500),
            method: "x.A/B".into(),
            code: Code::Ok,
            client: "127.0.0.1:5".into(),
            subject: String::new(),
            identity: String::new(),
            group: "g".into(),
            backend: "42/0".into(),
            request_bytes: 7,
            answer_bytes: 8,
            user_agent: "a \"quoted\"\nagent".into(),
            trace: String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_object_of_json() {
        let mut line = String::new();
        AccessEntry::for_test().write_json(&mut line);
        let object: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(object.as_object().unwrap().len(), Field::ALL.len());
        assert_eq!(object["time"], "1970-01-01T00:00:01.5Z");
        assert_eq!((&object["duration_ms"], &object["status"]), (&2.5.into(), &"OK".into()));
        assert_eq!(object["user_agent"], "a \"quoted\"\nagent");
        assert!(!line.contains('\n'));
    }

    #[test]
    fn a_template_has_what_it_names_and_clients_forge_no_line() {
        let template =
            Template::parse("{{{method}}} {status} {duration_ms} [{subject}] {user_agent}").unwrap();
        let mut line = String::new();
        template.write(&AccessEntry::for_test(), &mut line);
        assert_eq!(line, r#"{x.A/B} OK 2.500 [-] "a \"quoted\"\nagent""#);
        for (wrong, words) in [
            ("{mehtod}", "known are time, duration_ms, method"),
            ("{method", "no }"),
            ("a } b", "}}"),
            ("a\nb", "control"),
        ] {
            let error = Template::parse(wrong).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
