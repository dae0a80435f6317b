#![allow(
    unsafe_code,
    reason = "a socket of the netlink crate is made from a test's own pair"
)]

use netlink_packet_core::{NLM_F_DUMP_INTR, NLMSG_DONE, NLMSG_ERROR};

use super::datagram::{F_ACK_TLVS, F_CAPPED};
use super::dump::DUMP_ATTEMPTS;
use super::frame::HEADER;
use super::*;

fn message(kind: u16, flags: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let frame = Frame {
        kind,
        flags,
        payload: payload.to_vec(),
        op: "test",
        object: String::new(),
    };
    frame.encode(sequence, &mut out).unwrap();
    out
}

#[test]
fn datagram_splits_into_padded_messages() {
    let mut bytes = message(16, 0, 7, &[1, 2, 3]);
    bytes.extend(message(17, 0, 8, &[]));
    let messages = split(&bytes).unwrap();
    assert_eq!(
        messages.iter().map(|m| m.sequence).collect::<Vec<_>>(),
        [7, 8]
    );
    let Body::Object(reply) = &messages[0].body else {
        panic!("{messages:?}")
    };
    assert_eq!(
        *reply,
        Reply {
            kind: 16,
            payload: vec![1, 2, 3]
        }
    );
}

#[test]
fn error_carries_errno_and_explanation() {
    let mut payload = (-libc::EINVAL).to_ne_bytes().to_vec();
    payload.extend([0; HEADER]);
    payload.extend([7, 0, 1, 0, b'n', b'o', 0, 0]);
    let bytes = message(NLMSG_ERROR, F_CAPPED | F_ACK_TLVS, 1, &payload);
    let messages = split(&bytes).unwrap();
    let Body::Ack(Some(Reason::Refused { errno, message })) = &messages[0].body else {
        panic!("{messages:?}")
    };
    assert_eq!((*errno, message.as_deref()), (libc::EINVAL, Some("no")));
}

#[test]
fn broken_datagrams_are_refused_not_read_past() {
    let whole = message(16, 0, 1, &[0; 8]);
    for cut in 1..whole.len() {
        assert!(split(&whole[..cut]).is_err(), "cut at {cut}");
    }
    let mut lying = whole.clone();
    lying[0..4].copy_from_slice(&3u32.to_ne_bytes());
    assert!(split(&lying).is_err());
}

#[test]
fn acknowledgement_of_success_is_no_error() {
    let bytes = message(NLMSG_ERROR, 0, 1, &[0; 20]);
    assert!(matches!(split(&bytes).unwrap()[0].body, Body::Ack(None)));
}

/// A socket whose other end plays the kernel: `answer` makes the datagrams of
/// each request, given its number from 1 on and its sequence number.
fn with_kernel(
    requests: usize,
    answer: impl Fn(usize, u32) -> Vec<Vec<u8>> + Send + 'static,
) -> (Wire, std::thread::JoinHandle<std::os::fd::OwnedFd>) {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, recv, send, socketpair};
    use std::os::fd::{FromRawFd as _, IntoRawFd as _};
    let (ours, kernel) = socketpair(
        AddressFamily::Unix,
        SockType::SeqPacket,
        None,
        SockFlag::SOCK_CLOEXEC,
    )
    .unwrap();
    let timeout = TimeVal::new(0, 100_000);
    setsockopt(&ours, sockopt::ReceiveTimeout, &timeout).unwrap();
    let thread = std::thread::spawn(move || {
        let mut room = [0; 1024];
        for number in 1..=requests {
            let fd = kernel.as_raw_fd();
            recv(fd, &mut room, MsgFlags::empty()).unwrap();
            let sequence = u32::from_ne_bytes(room[8..12].try_into().unwrap());
            for datagram in answer(number, sequence) {
                send(fd, &datagram, MsgFlags::empty()).unwrap();
            }
        }
        // The kernel never closes its end.
        kernel
    });
    // SAFETY: the descriptor is open, and nobody else's any more.
    let socket = unsafe { RawSocket::from_raw_fd(ours.into_raw_fd()) };
    let wire = Wire {
        socket,
        sequence: 0,
        buffer: vec![0; ONE_OBJECT],
    };
    (wire, thread)
}

fn listing() -> Frame {
    Frame {
        kind: 18,
        flags: 0,
        payload: Vec::new(),
        op: "link list",
        object: "all of them".into(),
    }
}

/// One object whose content is the request's number, then the end.
fn list(number: usize, sequence: u32, interrupted: [bool; 2]) -> Vec<Vec<u8>> {
    let flags = |place: usize| {
        if interrupted[place] {
            NLM_F_DUMP_INTR
        } else {
            0
        }
    };
    let content = [u8::try_from(number).unwrap(); 4];
    vec![
        message(16, flags(0), sequence, &content),
        message(NLMSG_DONE, flags(1), sequence, &[0; 4]),
    ]
}

#[test]
fn a_list_that_was_interrupted_is_read_again() {
    // The mark may be on any message, be it the last one only.
    let (mut wire, kernel) = with_kernel(3, |number, sequence| {
        list(number, sequence, [number == 1, number == 2])
    });
    let replies = wire.dump(&listing()).unwrap();
    let payloads: Vec<&[u8]> = replies.iter().map(|r| r.payload.as_slice()).collect();
    assert_eq!(payloads, [[3; 4]], "nothing of the broken ones");
    kernel.join().unwrap();
}

#[test]
fn a_list_that_never_holds_still_is_an_error_that_names_it() {
    let attempts = DUMP_ATTEMPTS as usize;
    let (mut wire, kernel) = with_kernel(attempts, |number, sequence| {
        list(number, sequence, [true, false])
    });
    let error = wire.dump(&listing()).unwrap_err();
    assert_eq!(error.to_string(), "link list all of them");
    assert!(matches!(
        error.reason,
        Reason::DumpInterrupted(DUMP_ATTEMPTS)
    ));
    kernel.join().unwrap();
}

#[test]
fn no_reply_is_an_error_that_names_operation_and_object() {
    // Only the replies to requests before, or the first half of a list.
    let (mut wire, kernel) = with_kernel(2, |number, sequence| {
        let old = message(NLMSG_ERROR, 0, sequence.wrapping_sub(1), &[0; 20]);
        let half = message(16, 0, sequence, &[1]);
        vec![if number == 1 { old } else { half }]
    });
    let mut acknowledged = listing();
    acknowledged.flags = NLM_F_ACK;
    for outcome in [
        wire.transact(std::slice::from_ref(&acknowledged)),
        wire.dump(&listing()),
    ] {
        let error = outcome.unwrap_err();
        assert_eq!(error.to_string(), "link list all of them");
        assert!(matches!(error.reason, Reason::Timeout(_)), "{error:?}");
    }
    kernel.join().unwrap();
}

/// The kernel's answer to a request: an errno, or 0.
fn answer(sequence: u32, errno: i32) -> Vec<u8> {
    let mut payload = (-errno).to_ne_bytes().to_vec();
    payload.extend([0; HEADER]);
    message(NLMSG_ERROR, F_CAPPED, sequence, &payload)
}

#[test]
fn of_many_requests_the_last_answer_ends_the_wait_and_the_first_failure_is_told() {
    let frames = ["first", "second", "third"].map(|name| Frame {
        object: name.into(),
        ..listing()
    });
    for (answers, failed) in [
        (vec![(2, 0)], None),
        (
            vec![(0, libc::EEXIST), (1, libc::EBUSY), (2, 0)],
            Some("first"),
        ),
        (vec![(1, libc::EBUSY), (2, libc::EEXIST)], Some("second")),
        (vec![(2, libc::EEXIST)], Some("third")),
    ] {
        let (mut wire, kernel) = with_kernel(1, move |_, sequence| {
            let answers = answers.iter();
            let answers = answers.map(|(place, errno)| answer(sequence + place, *errno));
            // What is left of an abandoned request is none of this one's.
            let stale = answer(sequence.wrapping_sub(1), libc::EPERM);
            std::iter::once(stale).chain(answers).collect()
        });
        let outcome = wire.carry_out(&frames);
        assert_eq!(outcome.err().map(|error| error.object).as_deref(), failed);
        drop(kernel.join().unwrap());
    }
    let (mut wire, _kernel) = with_kernel(0, |_, _| Vec::new());
    wire.carry_out(&[]).unwrap();
}
