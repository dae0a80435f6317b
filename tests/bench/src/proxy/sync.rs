//! A start with nothing in the kernel, one with everything there, and what a change takes.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use seaway_testbed::fake_api::{SERVICES, SLICES};

use super::Scale;
use super::contender::{Contender, Running};
use super::meter::Memory;
use super::place::{self, Place};
use super::world::{self, PORT, World};

/// From one look at the kernel to the next.
const LOOK: Duration = Duration::from_millis(5);
/// How long a packet is waited for meanwhile; it is not sent again sooner than in a second.
const SOON: Duration = Duration::from_millis(30);
/// Services whose packets tell that a full sync is complete, beside the first and the last.
const SAMPLES: usize = 16;
/// What was measured of one contender; times in seconds, memory in MB.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) name: &'static str,
    /// Not done in time; what follows is then what it came to by then.
    pub(super) given_up: bool,
    pub(super) from_lists: f64,
    pub(super) from_exec: f64,
    pub(super) cpu: f64,
    pub(super) memory: Memory,
    /// With all rules there before.
    pub(super) restart: Option<(f64, Memory)>,
    pub(super) changes: Vec<f64>,
    /// While there were changes.
    pub(super) changing: Option<Memory>,
    /// Parts of a core in %, with nothing to do.
    pub(super) idle: Option<f64>,
}

/// Measures a contender on a node of its own, and leaves the node for what comes after.
pub(super) fn measure(contender: &Contender, scale: &Scale) -> Result<(Outcome, Place)> {
    let place = Place::new(scale.world)?;
    let mut running = contender.start(&place)?;
    let mut outcome = full(contender, &place, &mut running, scale)?;
    if outcome.given_up {
        return Ok((outcome, place));
    }
    for turn in 0..scale.changes {
        running.alive()?;
        outcome.changes.push(change(&place, turn, scale)?);
    }
    outcome.changing = Some(running.meter.memory());
    if !scale.idle.is_zero() {
        outcome.idle = Some(idle(&running, scale)?);
    }
    running.stop()?;
    if scale.restart {
        // What changes meanwhile shows when it has caught up.
        let new = World::move_canary(&place.api, scale.changes + 1);
        let running = contender.start(&place)?;
        let took = until_moved(&place, running.started, new, scale.patience)?;
        super::pause(scale.rest);
        outcome.restart = Some((took, running.meter.memory()));
        running.stop()?;
    }
    Ok((outcome, place))
}

fn full(
    contender: &Contender,
    place: &Place,
    running: &mut Running,
    scale: &Scale,
) -> Result<Outcome> {
    let done = until_served(place, running, scale.patience)?;
    let given_up = done.is_none();
    let done = done.unwrap_or_else(Instant::now);
    if !given_up {
        // The round goes on for a little, and weighs something until its end.
        super::pause(scale.rest);
        let (there, all) = (contender.targets(place)?, place.world.targets());
        if there != all {
            bail!(
                "{}: {there} of {all} endpoints when packets passed",
                contender.name
            );
        }
    }
    let listed = |kind| place.api.listed(kind, running.started);
    let lists = listed(SERVICES).max(listed(SLICES));
    let lists = lists.with_context(|| format!("{} has listed nothing", contender.name))?;
    Ok(Outcome {
        name: if given_up {
            contender.given_up
        } else {
            contender.name
        },
        given_up,
        from_lists: done.saturating_duration_since(lists).as_secs_f64(),
        from_exec: (done - running.started).as_secs_f64(),
        cpu: running.meter.cpu()?.as_secs_f64(),
        memory: running.meter.memory(),
        restart: None,
        changes: Vec::new(),
        changing: None,
        idle: None,
    })
}

/// When packets reach the first Service, the last one, and some in between; `None` if they
/// do not in time.
fn until_served(
    place: &Place,
    running: &mut Running,
    patience: Duration,
) -> Result<Option<Instant>> {
    let mut left = samples(place.world);
    let deadline = running.started + patience;
    loop {
        running.alive()?;
        place.client.enter(|| {
            while let Some(next) = left.last()
                && place::ask((world::cluster_ip(*next), PORT), SOON).is_ok()
            {
                left.pop();
            }
        });
        let now = Instant::now();
        if left.is_empty() {
            return Ok(Some(now));
        }
        if now > deadline {
            return Ok(None);
        }
        super::pause(LOOK);
    }
}

fn samples(world: World) -> Vec<usize> {
    let last = world.services - 1;
    let mut samples: Vec<usize> = (0..=SAMPLES).map(|nth| nth * last / SAMPLES).collect();
    samples.dedup();
    samples
}

/// Seconds from the write of an endpoint until packets reach it.
fn change(place: &Place, turn: u8, scale: &Scale) -> Result<f64> {
    super::pause(scale.rest);
    let started = Instant::now();
    let new = World::move_canary(&place.api, turn + 1);
    until_moved(place, started, new, scale.patience)
}

/// Seconds from `started` until packets reach a new endpoint.
fn until_moved(place: &Place, started: Instant, new: Ipv4Addr, patience: Duration) -> Result<f64> {
    let canary = (world::canary_ip(), PORT);
    place.client.enter(|| {
        while started.elapsed() < patience {
            if place::ask(canary, SOON).is_ok_and(|answer| answer.endpoint == new) {
                return Ok(started.elapsed().as_secs_f64());
            }
            super::pause(LOOK);
        }
        bail!("a changed endpoint is not met within {patience:?}")
    })
}

/// CPU time with nothing to do, in % of a core.
fn idle(running: &Running, scale: &Scale) -> Result<f64> {
    running.meter.pause(true);
    super::pause(scale.rest * 2);
    let (before, started) = (running.meter.cpu()?, Instant::now());
    super::pause(scale.idle);
    let used = running.meter.cpu()?.saturating_sub(before);
    let part = used.as_secs_f64() / started.elapsed().as_secs_f64();
    running.meter.pause(false);
    Ok(part * 100.0)
}
