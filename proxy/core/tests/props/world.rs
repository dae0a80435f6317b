//! Histories of events, and the objects that there are after them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use proptest::prelude::*;
use seaway_proxy_core::desired::Family;
use seaway_proxy_core::{Compiled, Model, Node, ObjectKey, compile};

use super::objects::{node, service, slice};

/// One event of a watch: names and contents.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    ApplyService(u8, u16),
    DeleteService(u8),
    ApplySlice(u8, u16),
    DeleteSlice(u8),
}

/// The objects that exist after all events.
#[derive(Clone, Debug, Default)]
pub(crate) struct World {
    pub(crate) services: BTreeMap<u8, u16>,
    pub(crate) slices: BTreeMap<u8, u16>,
}

impl World {
    /// After these.
    pub(crate) fn of(events: &[Event]) -> Self {
        let mut world = Self::default();
        for event in events {
            world.happen(event);
        }
        world
    }

    pub(crate) fn happen(&mut self, event: &Event) {
        match *event {
            Event::ApplyService(name, content) => {
                self.services.insert(name, content);
            }
            Event::DeleteService(name) => {
                self.services.remove(&name);
            }
            Event::ApplySlice(name, content) => {
                self.slices.insert(name, content);
            }
            Event::DeleteSlice(name) => {
                self.slices.remove(&name);
            }
        }
    }

    /// What of them is of these families.
    fn list(&self, only: &[Family]) -> (Vec<Service>, Vec<EndpointSlice>) {
        let services = self.services.iter();
        let slices = self.slices.iter();
        (
            services
                .filter_map(|(&name, &content)| service(name, content, only))
                .collect(),
            slices
                .filter_map(|(&name, &content)| slice(name, content, only))
                .collect(),
        )
    }

    /// Tells a model of all that there is, whatever it knows.
    pub(crate) fn relist(&self, model: &mut Model, slices_first: bool) {
        let (services, slices) = self.list(&Family::ALL);
        if slices_first {
            model.reset_slices(&slices);
        }
        model.reset_services(&services);
        if !slices_first {
            model.reset_slices(&slices);
        }
    }

    /// From one list of each kind, into an empty model.
    pub(crate) fn compiled(&self) -> Compiled {
        self.compiled_on(&node(), &Family::ALL)
    }

    pub(crate) fn compiled_on(&self, node: &Node, only: &[Family]) -> Compiled {
        let mut model = Model::new();
        let (services, slices) = self.list(only);
        model.reset_services(&services);
        model.reset_slices(&slices);
        compile(&model, node)
    }
}

pub(crate) fn feed(model: &mut Model, event: &Event) {
    match *event {
        Event::ApplyService(name, content) => {
            model.apply_service(&service(name, content, &Family::ALL).unwrap())
        }
        Event::DeleteService(name) => {
            model.delete_service(&ObjectKey::new("ns", format!("svc{name}")))
        }
        Event::ApplySlice(name, content) => {
            model.apply_slice(&slice(name, content, &Family::ALL).unwrap())
        }
        Event::DeleteSlice(name) => {
            model.delete_slice(&ObjectKey::new("ns", format!("slice{name}")))
        }
    };
}

pub(crate) fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => (0..5u8, any::<u16>()).prop_map(|(name, content)| Event::ApplyService(name, content)),
        1 => (0..5u8).prop_map(Event::DeleteService),
        4 => (0..6u8, any::<u16>()).prop_map(|(name, content)| Event::ApplySlice(name, content)),
        1 => (0..6u8).prop_map(Event::DeleteSlice),
    ]
}

/// The last so many events before a relist are lost, and the list makes up for them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gap {
    pub(crate) lost: usize,
    /// The event after which everything is listed. One that does not come stands for the end.
    pub(crate) relist_at: usize,
}

impl Gap {
    /// Whether nobody is told of this one of so many events.
    pub(crate) fn loses(self, index: usize, events: usize) -> bool {
        let end = self.relist_at.min(events);
        index < end && index + self.lost >= end
    }

    /// Whether everything is listed after this one of so many events, which are not none.
    pub(crate) fn ends(self, index: usize, events: usize) -> bool {
        index == self.relist_at.min(events - 1)
    }
}
