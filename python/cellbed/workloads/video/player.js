// The page of kind "video": a player, its rule, and reports of its actions to the program that drives the browser
// (playback.py). Times are in ms since the page's navigation.
"use strict"
const video = document.querySelector("video")
const SAMPLE_MS = 250
const DASH_RULES = {
  dynamic: ["throughputRule", "bolaRule"], throughput: ["throughputRule"], bola: ["bolaRule"], l2a: ["l2ARule"],
  "lol+": ["loLPRule"], own: [],
}
const chunks = new Map()

function send(message) { cellbedReport(JSON.stringify({ t: performance.now(), ...message })) }
function failed(text) { send({ event: "failed", text }) }

function buffered() {
  const at = video.currentTime
  for (let index = 0; index < video.buffered.length; index++) {
    if (video.buffered.start(index) <= at + 0.1 && at <= video.buffered.end(index)) return video.buffered.end(index) - at
  }
  return 0
}

function wanted(url, rate, height, at, length) {
  const chunk = new URL(url, location.href).href
  chunks.set(chunk, length)
  send({ chunk, rate, height, at, length })
}

// Return the rendition that the user's rule chooses. rates: of the renditions, bit/s, ascending; index: present one.
function chosen(rates, index) {
  const came = performance.getEntriesByType("resource").filter(each => chunks.has(each.name) && each.responseEnd)
  const found = rule({
    rates, index, buffer_s: buffered(), chunk_s: Math.max(0, ...chunks.values()),
    throughputs: came.map(each => each.encodedBodySize * 8000 / (each.responseEnd - each.startTime)),
  })
  if (Number.isInteger(found) && found >= 0 && found < rates.length) return found
  failed(`the rule returned ${found}: write one of 0 to ${rates.length - 1}`)
  return index
}

function dashRule() {
  function OwnRule() {
    const SwitchRequest = dashjs.FactoryMaker.getClassFactoryByName("SwitchRequest")
    const context = this.context
    return {
      reset() {},
      getSwitchRequest(state) {
        const all = state.getAbrController().getPossibleVoRepresentations(state.getMediaInfo(), true)
        all.sort((one, other) => one.bandwidth - other.bandwidth)
        const now = state.getRepresentation()
        const request = SwitchRequest(context).create()
        request.representation = all[chosen(all.map(each => each.bandwidth), all.findIndex(each => each.id === now.id))]
        request.priority = SwitchRequest.PRIORITY.STRONG
        request.reason = { rule: "own" }
        return request
      },
    }
  }
  OwnRule.__dashjs_factory_name = "OwnRule"
  return dashjs.FactoryMaker.getClassFactory(OwnRule)
}

const players = {
  dash(url, abr) {
    const player = dashjs.MediaPlayer().create()
    const own = DASH_RULES[abr]
    const rules = Object.fromEntries(Object.values(DASH_RULES).flat().map(name => [name, { active: own.includes(name) }]))
    if (abr === "own") {
      for (const name of ["insufficientBufferRule", "switchHistoryRule", "abandonRequestsRule"]) rules[name] = { active: false }
    }
    player.initialize()
    player.updateSettings({ streaming: { abr: { rules } } })
    if (abr === "own") player.addABRCustomRule("qualitySwitchRules", "OwnRule", dashRule())
    player.on("fragmentLoadingStarted", ({ request }) => {
      const of = request.representation
      if (request.type === "MediaSegment" && request.mediaType === "video") {
        wanted(request.url, of.bandwidth, of.height, request.startTime, request.duration)
      }
    })
    player.on("error", ({ error }) => failed(`dash.js: ${error.message || error.code || error}`))
    player.attachView(video)
    player.attachSource(url)
  },
  hls(url, abr) {
    const player = new Hls()
    const choose = () => {
      if (abr === "own") {
        player.nextLoadLevel = chosen(player.levels.map(each => each.bitrate), Math.max(0, player.nextLoadLevel))
      }
    }
    player.on(Hls.Events.MANIFEST_PARSED, choose)
    player.on(Hls.Events.FRAG_LOADED, (_, { frag }) => { if (frag.sn !== "initSegment") choose() })
    player.on(Hls.Events.FRAG_LOADING, (_, { frag }) => {
      const of = player.levels[frag.level]
      if (frag.sn !== "initSegment" && frag.type === "main") {
        wanted(frag.url, of.bitrate, of.height, frag.start, frag.duration)
      }
    })
    player.on(Hls.Events.ERROR, (_, data) => { if (data.fatal) failed(`hls.js: ${data.details}`) })
    player.loadSource(url)
    player.attachMedia(video)
  },
}

// Play a video. protocol: dash or hls; url: of its manifest; abr: a rule of dash.js, or own.
function watch(protocol, url, abr) {
  performance.setResourceTimingBufferSize(20000)
  for (const event of ["playing", "waiting", "ended"]) {
    video.addEventListener(event, () => send({ event, buffer: buffered() }))
  }
  video.addEventListener("error", () => failed(`the video: ${video.error.message || video.error.code}`))
  setInterval(() => {
    const quality = video.getVideoPlaybackQuality()
    send({ buffer: buffered(), frames: quality.totalVideoFrames, dropped: quality.droppedVideoFrames })
  }, SAMPLE_MS)
  players[protocol](url, abr)
  video.play().catch(error => { if (error.name !== "AbortError") failed(`the video: ${error.message}`) })
}
