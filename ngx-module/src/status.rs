//! `shortlink_status`: what the workers have counted, for Prometheus.

use ngx::ffi::{
    NGX_ERROR, NGX_HTTP_GET, NGX_HTTP_HEAD, NGX_HTTP_INTERNAL_SERVER_ERROR, NGX_HTTP_OK, NGX_OK,
    ngx_buf_t, ngx_chain_t, ngx_create_temp_buf, ngx_http_discard_request_body,
    ngx_http_output_filter, ngx_http_request_t, ngx_http_send_header, ngx_int_t, ngx_str_t,
    ngx_uint_t,
};
use ngx::http::{HttpModuleMainConf, Request};

use crate::shared::is_alive;
use crate::{Shortlink, respond, worker};

const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The content handler of a location with `shortlink_status`.
pub(crate) unsafe extern "C" fn handle(request: *mut ngx_http_request_t) -> ngx_int_t {
    // SAFETY: nginx calls a content handler with a valid request whose phases have run; what is
    // returned is what it finalizes the request with. The buffer has the text's length and lives
    // in the request's pool.
    unsafe {
        if (*request).method & (NGX_HTTP_GET | NGX_HTTP_HEAD) as ngx_uint_t == 0 {
            return respond::method_not_allowed(request);
        }
        let discarded = ngx_http_discard_request_body(request);
        if discarded != NGX_OK as ngx_int_t {
            return discarded;
        }
        // This worker's numbers as they are now; the others' are a second old at most.
        worker::with(worker::Worker::measure);
        let mut text = String::new();
        let main = Shortlink::main_conf(Request::from_ngx_http_request(request));
        let zone = main.and_then(|main| main.counters);
        match zone.and_then(|zone| zone.counters()) {
            Some(counters) => counters.render(is_alive, worker::now().unix, &mut text),
            None => return NGX_HTTP_INTERNAL_SERVER_ERROR as ngx_int_t,
        }

        (*request).headers_out.status = NGX_HTTP_OK as ngx_uint_t;
        (*request).headers_out.content_length_n = text.len() as i64;
        (*request).headers_out.content_type = ngx_str_t {
            len: CONTENT_TYPE.len(),
            data: CONTENT_TYPE.as_ptr().cast_mut(),
        };
        (*request).headers_out.content_type_len = CONTENT_TYPE.len();
        let result = ngx_http_send_header(request);
        if result == NGX_ERROR as ngx_int_t || result > NGX_OK as ngx_int_t {
            return result;
        }
        if (*request).header_only() != 0 {
            return NGX_OK as ngx_int_t;
        }
        let buffer: *mut ngx_buf_t = ngx_create_temp_buf((*request).pool, text.len());
        if buffer.is_null() {
            return NGX_ERROR as ngx_int_t;
        }
        (*buffer)
            .last
            .copy_from_nonoverlapping(text.as_ptr(), text.len());
        (*buffer).last = (*buffer).last.add(text.len());
        (*buffer).set_last_buf(u32::from(request == (*request).main));
        (*buffer).set_last_in_chain(1);
        let mut chain = ngx_chain_t {
            buf: buffer,
            next: std::ptr::null_mut(),
        };
        ngx_http_output_filter(request, &mut chain)
    }
}
