"""Videos that Chromium plays with dash.js or hls.js, from nginx or Caddy."""
