//! Statements for ranges of the indexes: several of them are one statement, as a sweep has nearly always nothing to do.

use super::driver::name;
use super::names::Names;
use super::sql::of_ranges::{ALL, CLOCK, LANES, LEAN};
use crate::store::sql::Value;
use crate::store::sql::codec::span;
use crate::store::state_code;
use crate::store::table::{By, Columns, Range, Start};

/// The text of a statement, and its values.
pub(super) struct Ranges {
    pub(super) text: String,
    pub(super) values: Vec<Value>,
}

impl Ranges {
    /// The rows of ranges, each with the number of its range, and with the time.
    pub(super) fn of(names: &Names, ranges: &[Range], columns: Columns) -> Self {
        let mut values = Vec::new();
        let mut parts = Vec::with_capacity(ranges.len());
        for (place, range) in ranges.iter().enumerate() {
            let columns = match columns {
                Columns::All => ALL,
                Columns::Lean => LEAN,
            };
            let columns = columns.replace("{number}", &place.to_string());
            parts.push(part(range, &columns, &mut values));
        }
        let states = ranges.iter().filter(|range| range.kind.is_none());
        let states = states.map(|range| state_code::of(range.state));
        let lanes = match (states.clone().min(), states.max()) {
            (Some(first), Some(last)) => {
                let lanes = LANES.replace("{first}", &first.to_string());
                format!("RECURSIVE {}, ", lanes.replace("{last}", &last.to_string()))
            }
            _ => String::new(),
        };
        let parts = parts.join(" UNION ALL ");
        let text = names.text(&format!(
            "WITH {lanes}{CLOCK} SELECT f.*, clock.now FROM clock LEFT JOIN ({parts}) f ON true"
        ));
        Self { text, values }
    }
}

/// The rows of one range, by its index alone: so all its columns are named, in their order.
fn part(range: &Range, columns: &str, values: &mut Vec<Value>) -> String {
    let mut value = |value, of: &str| {
        values.push(value);
        format!("${}::{of}", values.len())
    };
    let state = format!("{}::smallint", state_code::of(range.state));
    let kind = match &range.kind {
        Some(kind) => value(Value::of_text(name(kind.as_str())), "text"),
        None => "l.kind".to_owned(),
    };
    let (lane, pair, time) = match range.by {
        By::Due => ("t.kind, t.state", format!("{kind}, {state}"), "t.due_at"),
        By::Wake => ("t.state, t.kind", format!("{state}, {kind}"), "t.wake_at"),
    };
    let from = match range.from {
        Start::First => format!("({lane}) >= ({pair})"),
        Start::Ago(ago) => {
            let ago = value(Value::Int(span(ago)), "bigint");
            format!("({lane}, {time}) >= ({pair}, (SELECT clock.now - {ago} FROM clock))")
        }
        Start::After(at, id) => {
            let at = value(Value::Int(at.as_millis()), "bigint");
            let id = value(Value::Id(id), "uuid");
            format!("({lane}, {time}, t.id) > ({pair}, {at}, {id})")
        }
    };
    let until = match range.within {
        None => format!("({lane}) <= ({pair})"),
        Some(within) => {
            let within = value(Value::Int(span(within)), "bigint");
            format!(
                "({lane}, {time}) <= ({pair}, (SELECT least(clock.now + {within}, 253402300799999) FROM clock))"
            )
        }
    };
    let limit = value(Value::count(range.limit), "bigint");
    let direction = if range.backwards { " DESC" } else { "" };
    let order = format!("{lane}, {time}").replace(',', &format!("{direction},")) + direction;
    let order = match range.by {
        By::Due => format!("{order}, t.id{direction}"),
        By::Wake => order,
    };
    let rows = format!(
        "SELECT {columns} FROM {{tasks}} t WHERE {from} AND {until} AND {time} IS NOT NULL ORDER BY {order} LIMIT {limit}"
    );
    match range.kind {
        Some(_) => format!("({rows})"),
        None => format!("(SELECT t.* FROM lanes l CROSS JOIN LATERAL ({rows}) t WHERE l.state = {state})"),
    }
}
