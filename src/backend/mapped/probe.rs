//! The start-up probe: one real store, and a look for it.
//!
//! Attributes and entry points may say that a device stores words where none ever lands, so each
//! way that they promise is tried, and the first whose word is seen is kept. Costs one round trip
//! to the device for each try, some 20 us; a status that stays pending ends it after
//! [`PATIENCE`].

use super::calls::Interface;
use super::context::Context;
use super::handle::StreamHandle;
use super::store::{Form, Store};
use crate::core::error::{Error, ErrorCode, Result};
use crate::core::line::{CompletionLine, reached};
use crate::core::time::DurNs;
use crate::monotonic;
use alloc::{
    format,
    string::{String, ToString},
    vec::Vec,
};

/// How long the status of the probe's store may stay pending.
pub(super) const PATIENCE: DurNs = DurNs::from_us(1_000_000);
/// How long after the status the word may come. It comes before it, in fact.
const GRACE: DurNs = DurNs::from_us(1_000);
/// How long the word is looked for without any driver call.
const SILENCE: DurNs = DurNs::from_us(4_000);
/// How often the word must have come only when a status was asked before the driver is taken for one that
/// batches. A busy host may miss a word once.
const TRIES: u32 = 3;

/// What the probe found.
pub(super) struct Found {
    /// The first way of storing words that works.
    pub(super) form: Option<Form>,
    /// What does not, and why.
    pub(super) refused: Vec<String>,
    /// Whether the driver keeps what is queued until it is asked for it, so that a word never comes where
    /// nobody asks.
    pub(super) is_batched: bool,
}

/// What one try found.
enum Try {
    /// The word came without a driver call.
    Landed,
    /// It came once a status was asked.
    LandedWhenAsked,
    /// It does not come, and why.
    Refused(Error),
}

/// The first way of storing words that works, and why those before it do not.
///
/// # Errors
///
/// The failure of a call without which the device is of no use.
pub(super) fn find_form<A: Interface>(context: &Context<A>) -> Result<Found> {
    let forms = context.home.within("probe the store", |api| api.forms())?;
    let mut refused = forms.refused;
    let stream = context.take_stream()?;
    let mut found = Ok(None);
    let mut is_batched = false;
    for form in forms.candidates {
        match try_often(context, stream, form) {
            Ok(Try::Refused(why)) => {
                refused.push(format!("{form}: {why}"));
            }
            Ok(landed) => {
                is_batched = matches!(landed, Try::LandedWhenAsked);
                found = Ok(Some(form));
                break;
            }
            Err(error) => {
                found = Err(error);
                break;
            }
        }
    }
    context.give_stream_back(stream);
    Ok(Found { form: found?, refused, is_batched })
}

/// Tries `form`, again where its word came only when it was asked for.
fn try_often<A: Interface>(context: &Context<A>, stream: StreamHandle, form: Form) -> Result<Try> {
    let mut last = Try::LandedWhenAsked;
    for _ in 0..TRIES {
        last = store_and_look(context, stream, form)?;
        if !matches!(last, Try::LandedWhenAsked) {
            break;
        }
    }
    Ok(last)
}

/// Whether one store by `form` lands, and whether somebody must ask for it; the reason where it does not.
fn store_and_look<A: Interface>(
    context: &Context<A>,
    stream: StreamHandle,
    form: Form,
) -> Result<Try> {
    let mut lease = context.acquire_slot()?;
    let number = lease.issue();
    let line = lease.line().clone();
    let line: &CompletionLine = (*line).as_ref();
    let slot = lease.slot();
    let address = context.pages.device_address(line).expect("a slot's line is in a page")
        + (slot.index() * size_of::<u64>()) as u64;
    let store = Store { address, value: number };
    let (mut taken, mut came_alone) = (0, false);
    let asked = context.home.within("probe the store", |api| {
        // SAFETY: the stream is our own; the word lies in this context's memory, where it stays
        // until the context has settled.
        if let Err(refused) = unsafe { api.store(stream, form, &[store], &mut taken) } {
            return Ok(Err(refused));
        }
        let event = context.events.take(api)?;
        // SAFETY: both are live and our own.
        let recorded = unsafe { api.record(*event, stream) };
        let done = recorded.and_then(|()| {
            let silent = monotonic::now().after(SILENCE);
            while !came_alone && monotonic::now() < silent {
                std::thread::yield_now();
                came_alone = reached(line, slot, number);
            }
            let until = monotonic::now().after(PATIENCE);
            // SAFETY: the event is live.
            while !unsafe { api.query_event(*event) }? {
                if monotonic::now() >= until {
                    return Ok(false);
                }
                std::thread::yield_now();
            }
            Ok(true)
        });
        context.events.give_back([event]);
        Ok(Ok(done?))
    });
    let until = monotonic::now().after(GRACE);
    let outcome = match &asked {
        Ok(Ok(true)) => {
            let mut landed = reached(line, slot, number);
            while !landed && monotonic::now() < until {
                landed = reached(line, slot, number);
            }
            landed
        }
        _ => reached(line, slot, number),
    };
    // A store that did not land by now may land at any time, or never.
    context.give_slot_back(lease, !outcome);
    Ok(match asked? {
        Err(refused) if context.home.fault().is_none() => Try::Refused(refused),
        Err(sticky) => return Err(sticky),
        Ok(_) if outcome && came_alone => Try::Landed,
        Ok(_) if outcome => Try::LandedWhenAsked,
        Ok(true) => Try::Refused(Error::new(ErrorCode::StoreMissing, ["the start-up probe"])),
        Ok(false) => {
            let patience = format!("pending after {} ms", PATIENCE.0 / 1_000_000);
            Try::Refused(Error::backend("probe the store", patience.to_string()))
        }
    })
}
