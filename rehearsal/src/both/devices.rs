//! Cards, and releases of CUDA.

use std::ffi::c_int;

use crate::answer::Code;
use crate::argument::{Out, Text, write_text};
use crate::exports::exports;
use crate::settings::settings;
use crate::work::streams::PRIORITIES;
use crate::work::work;
use crate::{card, context, peers, pools, wheel};

exports! {
    driver cuDriverGetVersion, runtime cudaDriverGetVersion, runtime cudaRuntimeGetVersion(version: Out<c_int>) {
        version.set(wheel::cuda())
    }

    driver cuDeviceGetAttribute, runtime cudaDeviceGetAttribute(value: Out<c_int>, attribute: c_int, number: c_int) {
        context::card(number)?;
        value.set(card::attribute(attribute, number))
    }

    driver cuDeviceGetPCIBusId, runtime cudaDeviceGetPCIBusId(text: Out<u8>, capacity: c_int, number: c_int) {
        let capacity = usize::try_from(capacity).unwrap_or(0);
        context::card(number)?;
        write_text(text, capacity, &card::bus_text(number))
    }

    driver cuDeviceGetByPCIBusId, runtime cudaDeviceGetByPCIBusId(number: Out<c_int>, text: Text) {
        let text = text.get()?;
        let mut cards = 0..settings().cards as c_int;
        let found = cards.find(|card| card::bus_text(*card).eq_ignore_ascii_case(&text));
        number.set(found.ok_or(Code::INVALID_DEVICE)?)
    }

    driver cuDeviceCanAccessPeer, runtime cudaDeviceCanAccessPeer(answer: Out<c_int>, number: c_int, peer: c_int) {
        let can = peers::can_access(number, peer)?;
        answer.set(can.into())
    }

    driver cuCtxGetStreamPriorityRange, runtime cudaDeviceGetStreamPriorityRange(
        least: Out<c_int>, greatest: Out<c_int>,
    ) {
        least.offer(PRIORITIES.0);
        greatest.offer(PRIORITIES.1);
        Ok(())
    }

    driver cuCtxSynchronize, runtime cudaDeviceSynchronize() {
        context::used()?;
        let mut work = work();
        work.forbid_in_capture()?;
        work.complete_all();
        drop(work);
        pools::synchronized();
        Ok(())
    }
}
