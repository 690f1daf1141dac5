//! What a point is told to do: gofail's terms.
//!
//! `p%` and `n*` before an action say how often it is taken; `->` chains terms, and the first that
//! allows it is taken. Unlike gofail, a chance may be a whole number (`50%`), a string knows
//! escapes only of `"` and `\`, and `break`, which starts a debugger there, is refused.

use std::time::Duration;

/// What `return` gives to the place that asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    Unit,
    Number(i64),
    Flag(bool),
    Text(String),
}

/// What happens at a point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    Off,
    Return(Value),
    Sleep(Duration),
    Panic,
    Print,
}

#[derive(Debug, Clone, PartialEq)]
enum Limit {
    Chance(f64),
    Count(u64),
}

#[derive(Debug, Clone, PartialEq)]
struct Term {
    limits: Vec<Limit>,
    action: Action,
}

/// What a point is told, and how often it was done.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Terms {
    text: String,
    chain: Vec<Term>,
    taken: u64,
}

/// A text that is no chain of terms.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BadTerms;

impl Terms {
    pub(super) fn parse(text: &str) -> Result<Self, BadTerms> {
        let mut chain = Vec::new();
        let mut rest = text;
        loop {
            let (term, after) = parse_term(rest)?;
            chain.push(term);
            if after.is_empty() {
                break;
            }
            rest = after.strip_prefix("->").ok_or(BadTerms)?;
        }
        Ok(Self {
            text: text.to_owned(),
            chain,
            taken: 0,
        })
    }

    /// As it was given.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// How many times an action was taken; one that does nothing counts as well.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// What happens now; `chance` draws from 0 to 1.
    pub(super) fn take(&mut self, mut chance: impl FnMut() -> f64) -> Option<Action> {
        let mut allowed = self.chain.iter_mut().filter_map(|term| {
            let mut limits = term.limits.iter_mut();
            let is_allowed = limits.all(|limit| limit.allows(&mut chance));
            is_allowed.then_some(&term.action)
        });
        let action = allowed.next()?.clone();
        self.taken += 1;
        Some(action)
    }
}

impl Limit {
    fn allows(&mut self, mut chance: impl FnMut() -> f64) -> bool {
        match self {
            Self::Chance(most) => chance() <= *most,
            Self::Count(0) => false,
            Self::Count(left) => {
                *left -= 1;
                true
            }
        }
    }
}

fn parse_term(text: &str) -> Result<(Term, &str), BadTerms> {
    let (limits, rest) = parse_limits(text)?;
    let word_end = rest
        .find(|c: char| !c.is_ascii_lowercase())
        .unwrap_or(rest.len());
    let (word, rest) = rest.split_at(word_end);
    let (value, rest) = parse_value(rest)?;
    let action = match word {
        "off" => Action::Off,
        "return" => Action::Return(value),
        "sleep" => Action::Sleep(duration(&value).ok_or(BadTerms)?),
        "panic" => Action::Panic,
        "print" => Action::Print,
        _ => return Err(BadTerms),
    };
    Ok((Term { limits, action }, rest))
}

fn digits(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    text.split_at(end)
}

fn parse_limits(text: &str) -> Result<(Vec<Limit>, &str), BadTerms> {
    let mut limits = Vec::new();
    let mut rest = text;
    loop {
        let (whole, after) = digits(rest);
        if whole.is_empty() {
            return Ok((limits, rest));
        }
        if let Some(after) = after.strip_prefix('*') {
            limits.push(Limit::Count(whole.parse().or(Err(BadTerms))?));
            rest = after;
            continue;
        }
        let (fraction, after) = after.strip_prefix('.').map_or(("", after), digits);
        rest = after.strip_prefix('%').ok_or(BadTerms)?;
        let percent: f64 = format!("{whole}.{fraction}0").parse().or(Err(BadTerms))?;
        limits.push(Limit::Chance(percent / 100.0));
    }
}

/// `()`, `(5)`, `(true)`, `("text")`, or nothing.
fn parse_value(text: &str) -> Result<(Value, &str), BadTerms> {
    let Some(inside) = text.strip_prefix('(') else {
        return Ok((Value::Unit, text));
    };
    if let Some(quoted) = inside.strip_prefix('"') {
        let (value, rest) = parse_quoted(quoted)?;
        return Ok((value, rest.strip_prefix(')').ok_or(BadTerms)?));
    }
    let (word, rest) = inside.split_once(')').ok_or(BadTerms)?;
    let value = match word {
        "" => Value::Unit,
        "true" => Value::Flag(true),
        "false" => Value::Flag(false),
        number => Value::Number(number.parse().or(Err(BadTerms))?),
    };
    Ok((value, rest))
}

fn parse_quoted(text: &str) -> Result<(Value, &str), BadTerms> {
    let mut value = String::new();
    let mut chars = text.chars();
    loop {
        match chars.next().ok_or(BadTerms)? {
            '"' => return Ok((Value::Text(value), chars.as_str())),
            '\\' => match chars.next() {
                Some(escaped @ ('"' | '\\')) => value.push(escaped),
                _ => return Err(BadTerms),
            },
            plain => value.push(plain),
        }
    }
}

/// Milliseconds, or a text as Go writes a duration (`1m2.5s`).
fn duration(value: &Value) -> Option<Duration> {
    let text = match value {
        Value::Number(millis) => return u64::try_from(*millis).ok().map(Duration::from_millis),
        Value::Text(text) => text,
        Value::Unit | Value::Flag(_) => return None,
    };
    let mut total = Duration::ZERO;
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (whole, after) = digits(rest);
        let (fraction, after) = after.strip_prefix('.').map_or(("", after), digits);
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let end = after
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let seconds = match unit {
            "ns" => 1e-9,
            "us" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        let count: f64 = format!("0{whole}.{fraction}0").parse().ok()?;
        let part = Duration::try_from_secs_f64(count * seconds).ok()?;
        total = total.checked_add(part)?;
        rest = after;
    }
    (!text.is_empty()).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(text: &str, times: usize) -> Vec<Option<Action>> {
        let mut terms = Terms::parse(text).unwrap();
        (0..times).map(|_| terms.take(|| 0.5)).collect()
    }

    #[test]
    fn every_action_of_the_protocol_is_understood() {
        let cases = [
            ("off", Action::Off),
            ("panic", Action::Panic),
            ("panic(\"why\")", Action::Panic),
            ("print", Action::Print),
            ("return", Action::Return(Value::Unit)),
            ("return()", Action::Return(Value::Unit)),
            ("return(-7)", Action::Return(Value::Number(-7))),
            ("return(true)", Action::Return(Value::Flag(true))),
            (
                r#"return("a \"b\" (c)")"#,
                Action::Return(Value::Text(r#"a "b" (c)"#.to_owned())),
            ),
            ("sleep(100)", Action::Sleep(Duration::from_millis(100))),
            ("sleep(\"10s\")", Action::Sleep(Duration::from_secs(10))),
            (
                "sleep(\"1m1.5s\")",
                Action::Sleep(Duration::from_millis(61_500)),
            ),
        ];
        for (text, action) in cases {
            assert_eq!(taken(text, 1), [Some(action)], "{text}");
        }
    }

    #[test]
    fn a_count_runs_out_a_chance_is_drawn_and_the_first_term_that_allows_is_taken() {
        let cases = [
            ("2*off->1*panic", "off off panic -"),
            ("49.9%panic->off", "off off"),
            ("50%panic->off", "panic panic"),
            ("1*50.0%panic->off", "panic off"),
        ];
        for (text, expected) in cases {
            let words = taken(text, expected.split(' ').count());
            let words: Vec<_> = words
                .iter()
                .map(|action| match action {
                    None => "-",
                    Some(Action::Panic) => "panic",
                    Some(_) => "off",
                })
                .collect();
            assert_eq!(words.join(" "), expected, "{text}");
        }
        let mut terms = Terms::parse("2*print").unwrap();
        for _ in 0..5 {
            terms.take(|| 0.0);
        }
        assert_eq!(terms.taken(), 2, "what is not allowed is not counted");
    }

    #[test]
    fn what_is_no_term_is_refused() {
        for text in [
            "",
            "jump",
            "panic->",
            "panic off",
            "panic)",
            "3panic",
            "3*",
            "1.5*panic",
            "sleep",
            "sleep(true)",
            "sleep(\"soon\")",
            "sleep(-1)",
            "return(\"open)",
            "return(1",
            "break",
        ] {
            assert_eq!(Terms::parse(text), Err(BadTerms), "{text}");
        }
    }
}
