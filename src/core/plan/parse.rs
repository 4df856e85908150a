//! Reads the text of a wait plan.
//!
//! One pass from the left, which stops at the first fault. Its time is linear in the text, and
//! nothing is allocated unless there is a fault to report.

use super::fault::{Fault, Piece, one_of};
use super::{DeadlinePlan, Park, ParkKind, WINDOW_MAX, WaitPlan};
use crate::core::error::{Error, Result};
use alloc::format;
use core::str::FromStr;

/// What begins a prediction.
const PREDICT: &str = "+predict:";
/// The names of the parks, for faults.
const PARKS: [&str; 4] = ["block", "poll", "flag", "spin"];
const NS_PER_US: u64 = 1_000;

struct Field {
    name: &'static str,
    least: u64,
    most: u64,
}

impl Field {
    const fn new(name: &'static str, least: u64, most: u64) -> Self {
        Field { name, least, most }
    }

    /// A time in microseconds whose nanoseconds fit 64 bits.
    const fn any_us(name: &'static str) -> Self {
        Field::new(name, 0, u64::MAX / NS_PER_US)
    }
}

const FLAG: [Field; 2] = [Field::new("park_us", 1, 10_000), BACKSTOP_US];
const SPIN: [Field; 1] = [BACKSTOP_US];
const BACKSTOP_US: Field = Field::new("backstop_us", 1, 1_000_000);
const DEADLINE: [Field; 4] = [
    Field::any_us("margin_us"),
    Field::any_us("min_sleep_us"),
    Field::any_us("max_sleep_us"),
    Field::new("window", 1, WINDOW_MAX as u64),
];

impl WaitPlan {
    /// The plan that `text` spells, by the grammar above. Digits may have leading zeros.
    ///
    /// Costs time linear in the text, and allocates only for an error.
    ///
    /// # Errors
    ///
    /// [`InvalidPlan`](crate::ErrorCode::InvalidPlan) with the text, cut behind 200 characters,
    /// and its first fault: which field, what was expected, what stood there.
    /// [`Error::span`] is where it stood, an empty range where something is missing.
    ///
    /// ```
    /// # use gpu_async_reactor::{Park, WaitPlan};
    /// let plan = WaitPlan::parse("flag:backstop_us=50000,park_us=100")?;
    /// assert_eq!(plan.park, Park::FlagWait { park_ns: 100_000, backstop_ns: 50_000_000 });
    ///
    /// let error = WaitPlan::parse("flag:park_us=100,backstop_us=2s").unwrap_err();
    /// assert_eq!(error.args()[1], "backstop_us: expected only digits, found \"2s\"");
    /// assert_eq!(error.span(), Some(29..31));
    /// # Ok::<(), gpu_async_reactor::Error>(())
    /// ```
    pub fn parse(text: &str) -> Result<WaitPlan> {
        plan(Piece::whole(text)).map_err(|fault| fault.into_error(text))
    }
}

impl FromStr for WaitPlan {
    type Err = Error;

    /// [`WaitPlan::parse`].
    fn from_str(text: &str) -> Result<Self> {
        WaitPlan::parse(text)
    }
}

/// The plan that the whole of `text` spells.
pub(super) fn plan(text: Piece<'_>) -> Result<WaitPlan, Fault> {
    let (head, prediction) = text.split_before(PREDICT);
    let park = park(head)?;
    let predict = match prediction {
        None => None,
        Some(tail) if park == Park::Block => return Err(Fault::new("block", NO_PREDICTION, tail)),
        Some(tail) => Some(deadline(tail.skip(PREDICT.len()))?),
    };
    Ok(WaitPlan { predict, park })
}

const NO_PREDICTION: &str = "no prediction";
const PREDICTION_OR_NOTHING: &str = "\"+predict:\" or nothing behind it";

fn park(text: Piece<'_>) -> Result<Park, Fault> {
    let (head, fields) = text.split_before(":");
    // No name has a plus, so what stands behind one here is not a prediction.
    let (name, plus) = head.split_before("+");
    let Some(&kind) = ParkKind::ALL.iter().find(|kind| kind.name() == name.text) else {
        return Err(Fault::new("park", one_of(&PARKS, name.text), name));
    };
    if plus.is_some() {
        let expected = match kind {
            ParkKind::Block => NO_PREDICTION,
            _ => PREDICTION_OR_NOTHING,
        };
        return Err(Fault::new(kind, expected, text.skip(name.text.len())));
    }
    match (kind, fields) {
        (ParkKind::Block, None) => Ok(Park::Block),
        (ParkKind::QueryPoll, None) => Ok(Park::QueryPoll),
        (ParkKind::FlagWait, Some(tail)) => {
            let [park_us, backstop_us] =
                self::fields(kind.name(), PREDICTION_OR_NOTHING, tail.skip(1), &FLAG)?;
            Ok(Park::FlagWait { park_ns: park_us.ns(), backstop_ns: backstop_us.ns() })
        }
        (ParkKind::Spin, Some(tail)) => {
            let [backstop_us] =
                self::fields(kind.name(), PREDICTION_OR_NOTHING, tail.skip(1), &SPIN)?;
            Ok(Park::Spin { backstop_ns: backstop_us.ns() })
        }
        (ParkKind::FlagWait, None) => {
            Err(Fault::new(kind, "\":park_us=...,backstop_us=...\"", text.end()))
        }
        (ParkKind::Spin, None) => Err(Fault::new(kind, "\":backstop_us=...\"", text.end())),
        (ParkKind::Block | ParkKind::QueryPoll, Some(tail)) => {
            Err(Fault::new(kind, "no fields", tail))
        }
    }
}

fn deadline(text: Piece<'_>) -> Result<DeadlinePlan, Fault> {
    let [margin_us, min_sleep_us, max_sleep_us, window] =
        fields("predict", "nothing behind it", text, &DEADLINE)?;
    if min_sleep_us.number > max_sleep_us.number {
        let expected = format!("at most max_sleep_us, {}", max_sleep_us.number);
        return Err(Fault::new("min_sleep_us", expected, min_sleep_us.piece));
    }
    Ok(DeadlinePlan {
        margin_ns: margin_us.ns(),
        min_sleep_ns: min_sleep_us.ns(),
        max_sleep_ns: max_sleep_us.ns(),
        window: u8::try_from(window.number).unwrap_or(WINDOW_MAX),
    })
}

/// The number of a field, within the field's range, and where it stands.
#[derive(Clone, Copy)]
struct Value<'t> {
    number: u64,
    piece: Piece<'t>,
}

impl Value<'_> {
    /// Of a number of microseconds. In range, it does not saturate.
    fn ns(self) -> u64 {
        self.number.saturating_mul(NS_PER_US)
    }
}

/// Each of the `specs`, once, in any order, and nothing else. `owner` is what has the fields, and
/// `behind` what may follow the last of them.
fn fields<'t, const N: usize>(
    owner: &str,
    behind: &str,
    text: Piece<'t>,
    specs: &[Field; N],
) -> Result<[Value<'t>; N], Fault> {
    let mut values: [Option<Value<'t>>; N] = [None; N];
    let mut rest = Some(text);
    while let Some(here) = rest {
        let (field, comma) = here.split_before(",");
        rest = comma.map(|tail| tail.skip(1));

        let (name, equals) = field.split_before("=");
        let Some(at) = specs.iter().position(|spec| spec.name == name.text) else {
            let names = specs.each_ref().map(|spec| spec.name);
            return Err(Fault::new(
                owner,
                format!("the field {}", one_of(&names, name.text)),
                field,
            ));
        };
        let spec = &specs[at];
        if values[at].is_some() {
            return Err(Fault::new(spec.name, "the field only once", field));
        }
        let Some(equals) = equals else {
            return Err(Fault::new(spec.name, "\"=\" and digits", field.end()));
        };
        let value = equals.skip(1);
        let digits = value.text.bytes().take_while(u8::is_ascii_digit).count();
        if digits > 0 && value.text[digits..].starts_with('+') {
            return Err(Fault::new(owner, behind, value.skip(digits)));
        }
        values[at] = Some(Value { number: number(spec, value)?, piece: value });
    }

    if let Some(at) = values.iter().position(Option::is_none) {
        return Err(Fault::new(specs[at].name, "the field", text.end()));
    }
    Ok(values.map(|value| value.expect("the first missing one was reported above")))
}

/// The number of the row count at which a band begins: more than `below`.
pub(super) fn edge(text: Piece<'_>, below: u64) -> Result<u64, Fault> {
    let edge = number(&Field::new("rows", 1, u64::MAX), text)?;
    if edge <= below {
        return Err(Fault::new("rows", format!("more than {below}, the band before"), text));
    }
    Ok(edge)
}

/// The number that `text` spells, in the field's range.
fn number(field: &Field, text: Piece<'_>) -> Result<u64, Fault> {
    if text.text.is_empty() || !text.text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Fault::new(field.name, digits_expected(text.text), text));
    }
    let number = text.text.bytes().try_fold(0_u64, |number, digit| {
        number.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
    });
    match number {
        Some(number) if (field.least..=field.most).contains(&number) => Ok(number),
        _ => Err(Fault::new(field.name, format!("{} to {}", field.least, field.most), text)),
    }
}

/// What of the rules for digits `found` breaks: the first rule that a person would want to read.
#[cold]
fn digits_expected(found: &str) -> &'static str {
    if found.is_empty() {
        "digits"
    } else if found.starts_with(['+', '-']) {
        "digits without a sign"
    } else if found.contains(char::is_whitespace) {
        "digits without spaces"
    } else if found.contains(|char: char| char.is_numeric() && !char.is_ascii()) {
        "the ASCII digits 0 to 9"
    } else {
        "only digits"
    }
}
