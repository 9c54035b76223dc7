# The part of nginx' Makefile that builds the module. cargo knows itself what has changed, so it is run each time.

case "$NGX_OBJS" in
    /*) ngx_shortlink_objs=$NGX_OBJS ;;
    *) ngx_shortlink_objs=$PWD/$NGX_OBJS ;;
esac

cat << END                                                    >> $NGX_MAKEFILE

.PHONY: shortlink-cargo
shortlink-cargo:

$ngx_shortlink_library: shortlink-cargo
	NGINX_SOURCE_DIR="$PWD" NGINX_BUILD_DIR="$ngx_shortlink_objs" \\
	${CARGO:-cargo} rustc --locked --release --lib --crate-type staticlib --no-default-features \\
		--manifest-path "$ngx_shortlink_dir/Cargo.toml" --target-dir "$ngx_shortlink_objs/shortlink"
END

for ngx_module in $DYNAMIC_MODULES
do
    if [ $ngx_module = ngx_http_shortlink_module ]; then
        cat << END                                            >> $NGX_MAKEFILE

$NGX_OBJS/ngx_http_shortlink_module$ngx_modext: $ngx_shortlink_library
END
    fi
done
