//! Where settings come from: a file, the environment and flags.

use std::borrow::Cow;
use std::ffi::OsString;
use std::ops::Range;

use serde::Deserialize as _;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

use super::settings::{SETTINGS, Setting, Shape};
use super::{Config, Mistake};

/// With which the names of our variables begin: a service of Kubernetes that is called `delayline` makes some with one
/// underscore.
pub(super) const PREFIX: &str = "DELAYLINE__";

/// At the end of a variable's name: its value is in a file.
const IN_FILE: &str = "_FILE";

/// In front of a value, where the parser wants a key.
const KEY: &str = "value";

/// A value that a flag or a variable gives.
#[derive(Debug)]
pub(super) struct Given {
    /// The flag, or the variable.
    pub(super) by: String,
    pub(super) setting: &'static Setting,
    pub(super) value: String,
}

/// A file: its name, and what it says.
#[derive(Clone, Copy, Debug)]
pub(super) struct File<'i> {
    pub(super) name: &'i str,
    pub(super) text: &'i str,
}

/// What all of them say, the later before the earlier, and with what is wrong by where it was said.
pub(super) fn config(file: Option<File<'_>>, given: &[Given]) -> Result<Config, Mistake> {
    let places = Places::of(file, given);
    let wrong = |error: toml::de::Error| places.mistake(error.span(), without_texts(error.message()));
    // Its own way of showing an error shows the line, in which a secret may be.
    let mut table = match file {
        Some(file) => DeTable::parse(file.text).map_err(wrong)?.into_inner(),
        None => DeTable::new(),
    };
    let placed: Vec<_> = places.given.iter().map(|(at, given)| given.placed(at)).collect();
    for ((at, given), placed) in places.given.iter().zip(&placed) {
        given.put(&mut table, at, placed)?;
    }
    let mut settings = Vec::new();
    leaves(&table, "", &mut settings);
    let table = Deserializer::from(Spanned::new(0..0, table));
    let mut config = Config::deserialize(table).map_err(|error| {
        let message = without_texts(error.message());
        let at = error.span();
        let is_meant = |span: &Range<usize>| at.as_ref().is_some_and(|at| span.contains(&at.start));
        let meant = settings.iter().find(|(span, _)| is_meant(span));
        let message = match meant.filter(|(_, setting)| !message.contains(setting)) {
            Some((_, setting)) => format!("{setting}: {message}"),
            None => message,
        };
        places.mistake(at, message)
    })?;
    config.said_by = given
        .iter()
        .map(|given| (given.setting.name(), given.by.clone()))
        .collect();
    match config.contradiction() {
        Some((at, what)) => Err(places.mistake(Some(at), what)),
        None => Ok(config),
    }
}

/// Where each value is, and how it is named.
fn leaves(table: &DeTable<'_>, within: &str, found: &mut Vec<(Range<usize>, String)>) {
    for (key, value) in table {
        let key = key.get_ref().as_ref();
        let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let key = match key.bytes().all(is_bare) {
            true => format!("{within}{key}"),
            false => format!("{within}{key:?}"),
        };
        match value.get_ref() {
            DeValue::Table(table) => leaves(table, &format!("{key}."), found),
            _ => found.push((value.span(), key)),
        }
    }
}

/// Where all that is said would be in one text: first the file, then each value that is given otherwise. So a place that the
/// parser or a check names leads back to a line, a flag or a variable.
struct Places<'i> {
    file: Option<File<'i>>,
    given: Vec<(Range<usize>, &'i Given)>,
}

impl<'i> Places<'i> {
    fn of(file: Option<File<'i>>, given: &'i [Given]) -> Self {
        // Nothing is given at the first place, where a default is that is nowhere said.
        let mut end = file.map_or(0, |file| file.text.len()) + 1;
        let place = |given: &'i Given| {
            let start = end;
            end += KEY.len() + 3 + given.value.len() + 1;
            (start..end, given)
        };
        Self {
            file,
            given: given.iter().map(place).collect(),
        }
    }

    fn mistake(&self, at: Option<Range<usize>>, what: String) -> Mistake {
        let at = at.map_or(0, |at| at.start);
        let given = self.given.iter().find(|(range, _)| range.contains(&at));
        match (given, self.file) {
            (Some((_, given)), _) => given.mistake(what),
            (None, Some(File { name, text })) => Mistake::Line {
                file: name.to_owned(),
                line: line_of(text, at),
                what,
            },
            (None, None) => Mistake::Given {
                by: "the configuration".to_owned(),
                what,
            },
        }
    }
}

impl Given {
    pub(super) fn new(by: impl Into<String>, setting: &'static Setting, value: impl Into<String>) -> Self {
        Self {
            by: by.into(),
            setting,
            value: value.into(),
        }
    }

    pub(super) fn mistake(&self, what: String) -> Mistake {
        let name = self.setting.name();
        let is_named = self.by.ends_with(&name);
        let rest = what.strip_prefix(&format!("{name}: ")).filter(|_| is_named);
        Mistake::Given {
            by: self.by.clone(),
            what: rest.unwrap_or(&what).to_owned(),
        }
    }

    /// The value as one of TOML, so far behind that its places are its own.
    fn placed(&self, at: &Range<usize>) -> String {
        " ".repeat(at.start) + KEY + " = " + &self.value
    }

    /// Sets it, in place of what was there.
    fn put<'i>(&self, all: &mut DeTable<'i>, at: &Range<usize>, placed: &'i str) -> Result<(), Mistake> {
        let key = |name: &'static str| Spanned::new(at.clone(), Cow::Borrowed(name));
        let value = self.read(at, placed)?;
        let table = match self.setting.table {
            None => all,
            Some(name) => {
                let new = || Spanned::new(at.clone(), DeValue::Table(DeTable::new()));
                match all.entry(key(name)).or_insert_with(new).get_mut() {
                    DeValue::Table(table) => table,
                    // The file has something else there, which is told.
                    _ => return Ok(()),
                }
            }
        };
        // A key that is there keeps its place, and would be blamed.
        table.remove(self.setting.key);
        table.insert(key(self.setting.key), value);
        Ok(())
    }

    fn read<'i>(&self, at: &Range<usize>, placed: &'i str) -> Result<Spanned<DeValue<'i>>, Mistake> {
        let name = self.setting.name();
        let (shape, value) = (self.setting.shape, self.value.as_str());
        let of = |value| Spanned::new(at.clone(), value);
        let text = |text: &str| of(DeValue::String(Cow::Owned(text.to_owned())));
        let parts = || value.split(',').map(str::trim).filter(|part| !part.is_empty());
        let toml = || {
            let table = DeTable::parse(placed).map_err(|error| without_texts(error.message()));
            let mut table = table?.into_inner();
            // A line break and another key are part of no value.
            let is_alone = table.len() == 1;
            let value = table.remove(KEY).filter(|_| is_alone);
            value.ok_or_else(|| "it is more than one value".to_owned())
        };
        let wrong = |what: String| self.mistake(format!("{name} is not shown, and no TOML: {what}"));
        Ok(match shape {
            Shape::List if value.trim_start().starts_with('[') => toml().map_err(wrong)?,
            Shape::Tokens if value.trim_start().starts_with('[') => toml().map_err(wrong)?,
            Shape::Table if value.trim_start().starts_with('{') => toml().map_err(wrong)?,
            Shape::List => of(DeValue::Array(parts().map(text).collect())),
            Shape::Tokens => of(DeValue::Array(
                parts()
                    .map(|part| self.token(part, at))
                    .collect::<Result<_, _>>()?,
            )),
            // An empty address would be another one than was meant.
            _ if value.is_empty() => {
                return Err(self.mistake(format!("{name} is empty: allowed is a value, or none at all")));
            }
            Shape::Table => {
                let allowed = "allowed is one of TOML, such as { a = \"b\" }";
                return Err(self.mistake(format!("{name} is not shown, and no table: {allowed}")));
            }
            // What is given is not looked at for variables: it may be a password.
            Shape::Text => text(&value.replace("${", "$${")),
            Shape::Name => text(value),
            Shape::Plain => match toml() {
                Ok(plain) if matches!(plain.get_ref(), DeValue::Integer(_) | DeValue::Boolean(_)) => plain,
                // What is wanted is told by what reads it.
                _ => text(value),
            },
        })
    }

    /// A token that may do all.
    fn token(&self, part: &str, at: &Range<usize>) -> Result<Spanned<DeValue<'static>>, Mistake> {
        let of = |value| Spanned::new(at.clone(), value);
        let text = |text: &str| of(DeValue::String(Cow::Owned(text.to_owned())));
        let key = |name| Spanned::new(at.clone(), Cow::Borrowed(name));
        let Some((name, sha256)) = part.split_once('=') else {
            let what =
                "http.tokens is not shown: allowed are NAME=SHA256, separated by commas, or a list of TOML";
            return Err(self.mistake(what.to_owned()));
        };
        let may = ["read", "schedule", "change", "work"].map(text);
        let may = DeValue::Array(may.into_iter().collect());
        let members = [("name", text(name)), ("sha256", text(sha256)), ("may", of(may))];
        let members = members.map(|(name, value)| (key(name), value));
        Ok(of(DeValue::Table(members.into_iter().collect())))
    }
}

/// What the environment gives, of variables with our prefix.
pub(super) fn environment(
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> Result<Vec<Given>, Mistake> {
    let mut all: Vec<Given> = Vec::new();
    for (name, value) in variables {
        let name = name.to_string_lossy().into_owned();
        let Some(rest) = name.strip_prefix(PREFIX) else {
            continue;
        };
        let refused = |what: String| Mistake::Given {
            by: name.clone(),
            what,
        };
        let value = value
            .into_string()
            .map_err(|_| refused("the value is not UTF-8".to_owned()))?;
        let named = |rest: &str| SETTINGS.iter().find(|setting| setting.in_environment() == rest);
        let in_file = || named(rest.strip_suffix(IN_FILE)?);
        let (setting, value) = match (named(rest), in_file()) {
            (Some(setting), _) => (setting, value),
            (None, Some(setting)) => {
                let text = std::fs::read_to_string(&value)
                    .map_err(|cause| refused(format!("{value:?} cannot be read: {cause}")))?;
                // Editors end a file so, and `echo`.
                let text = text.strip_suffix('\n').unwrap_or(&text);
                (setting, text.strip_suffix('\r').unwrap_or(text).to_owned())
            }
            (None, None) => {
                let meant = Setting::meant(rest, PREFIX, Setting::in_environment);
                return Err(refused(format!(
                    "there is no such setting: {meant}, and the same with {IN_FILE} at its end"
                )));
            }
        };
        if let Some(other) = all.iter().find(|given| std::ptr::eq(given.setting, setting)) {
            return Err(refused(format!(
                "{} gives the same: allowed is one of both",
                other.by
            )));
        }
        all.push(Given::new(name, setting, value));
    }
    Ok(all)
}

fn line_of(text: &str, at: usize) -> usize {
    let before = text.as_bytes().get(..at).unwrap_or(text.as_bytes());
    before.iter().filter(|&&byte| byte == b'\n').count() + 1
}

/// The message of the parser in words for people, without a text that stands where another type is wanted, and without a number
/// or a boolean where a text is: it may be a secret.
fn without_texts(message: &str) -> String {
    let (before, wanted) = match message.rsplit_once(", expected ") {
        Some((before, "usize" | "u32")) => (before, ", expected a whole number"),
        Some((before, "a nonzero usize" | "a nonzero u32")) => (before, ", expected a whole number from 1"),
        _ => (message, ""),
    };
    if wanted.is_empty()
        && let Some(rest) = before.strip_prefix("invalid type: ")
        && let Some((sort @ ("integer" | "floating point" | "boolean"), value)) = rest.split_once(" `")
    {
        let after = value.split_once('`').map_or("", |(_, after)| after);
        return format!("invalid type: {sort}{after}");
    }
    let Some((before, text)) = before.split_once("string \"") else {
        return format!("{before}{wanted}");
    };
    let after = text.rsplit_once('"').map_or("", |(_, after)| after);
    format!("{before}a text{after}{wanted}")
}
