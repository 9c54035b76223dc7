//! `shortlink_duplex`: requests that are still being sent while they are answered.
//!
//! nginx' proxy sends no more of a request once its answer has begun and the server behind it takes
//! nothing for a moment: it no longer waits for that server to take more. A batch, whose results
//! come while its rows are sent, would stop there for good. nginx does continue to send to gRPC
//! servers; the same switch (`preserve_output`) does it for others.

use std::ffi::{CStr, c_char, c_void};

use ngx::ffi::{ngx_command_t, ngx_conf_t, ngx_http_conf_ctx_t, ngx_http_upstream_conf_t};

use super::words::finish;

/// The module of `proxy_pass`.
const PROXY: &CStr = c"ngx_http_proxy_module";

pub(super) unsafe extern "C" fn set(
    cf: *mut ngx_conf_t,
    _command: *mut ngx_command_t,
    _conf: *mut c_void,
) -> *mut c_char {
    // SAFETY: nginx calls this with a valid configuration, within a location.
    unsafe { finish(cf, go_on_sending(cf)) }
}

unsafe fn go_on_sending(cf: *mut ngx_conf_t) -> Result<(), String> {
    // SAFETY: the list of modules ends with null. Within a location its context has the
    // configurations of all modules of HTTP; that of the proxy begins with what it says to nginx'
    // upstreams, and nothing else has it while the configuration is read.
    unsafe {
        let mut module = (*(*cf).cycle).modules;
        while !(*module).is_null() && CStr::from_ptr((**module).name) != PROXY {
            module = module.add(1);
        }
        if (*module).is_null() {
            return Err("\"shortlink_duplex\" needs nginx' module for proxy_pass".to_owned());
        }
        let context = (*cf).ctx.cast::<ngx_http_conf_ctx_t>();
        let place = (*context).loc_conf.add((**module).ctx_index);
        let upstream = (*place).cast::<ngx_http_upstream_conf_t>();
        if (*upstream).preserve_output() == 1 {
            return Err("\"shortlink_duplex\" is given twice in this location".to_owned());
        }
        (*upstream).set_preserve_output(1);
    }
    Ok(())
}
