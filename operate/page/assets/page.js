// Puts the parts of the page in place as the node sends them, and asks it for changes.
'use strict'

const $ = id => document.getElementById(id)
const secret = 'edge-token' // its name in sessionStorage, which ends with the tab
const silence = 20000       // milliseconds without an event after which the page reconnects
const view = new URLSearchParams(location.search)
let skew = 0                // of the node's clock, in milliseconds
let build = ''
let stream = null           // an AbortController
let attempts = 0
let shown = 0               // when the first event was shown, in milliseconds since the navigation started

// The token may follow the #, in the part that browsers send to nobody. It is removed from the address bar.
const given = new URLSearchParams(location.hash.slice(1)).get('token')
if (given) {
  sessionStorage.setItem(secret, given)
  history.replaceState(null, '', location.pathname + location.search)
}

function headers() {
  const token = sessionStorage.getItem(secret)
  return token ? {Authorization: 'Bearer ' + token} : {}
}

function say(text) {
  $('said').textContent = text
  clearTimeout(say.timer)
  say.timer = setTimeout(() => { $('said').textContent = '' }, 6000)
}

function linked(state, text) {
  if ($('link').dataset.state === state && $('link').textContent === text) return
  $('link').dataset.state = state
  $('link').textContent = text
}

// listen receives events until the view changes, and reconnects when the node is back.
async function listen() {
  if (stream) stream.abort()
  const own = stream = new AbortController()
  if (document.hidden) return linked('waiting', 'Paused while this tab is hidden')
  let guard
  try {
    const watch = () => { clearTimeout(guard); guard = setTimeout(() => own.abort(), silence) }
    watch()
    const answer = await fetch('api/v1/events?' + view, {headers: headers(), signal: own.signal, cache: 'no-store'})
    if (answer.status === 401) {
      clearTimeout(guard)
      return locked(sessionStorage.getItem(secret) ? 'The node does not accept this token.' : '')
    }
    if (!answer.ok) throw new Error((await answer.json()).error)
    locked(null)
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader()
    let text = ''
    for (;;) {
      const {value, done} = await reader.read()
      if (done || stream !== own) break
      watch()
      text += value
      for (let end; (end = text.indexOf('\n\n')) >= 0; text = text.slice(end + 2)) {
        try {
          show(JSON.parse(text.slice('data: '.length, end)))
        } catch (e) {
          console.error(e) // other parts are still shown
        }
      }
    }
  } catch (e) {
    if (stream === own && e.name !== 'AbortError' && e.name !== 'TypeError') say(e.message)
  }
  clearTimeout(guard)
  if (stream !== own) return
  linked('lost', 'The node does not answer; trying again')
  stream.abort()
  setTimeout(() => { if (stream === own) listen() }, Math.min(5000, 500 * 2 ** attempts++))
}

// locked asks for a token, unless problem is null: then none is needed.
function locked(problem) {
  const is = problem !== null
  document.body.classList.toggle('locked', is)
  if (is) linked('waiting', 'Waiting for a token')
  if ($('login').hidden === is) {
    $('login').hidden = !is
    if (is) $('token').focus()
  }
  $('login-problem').textContent = problem ?? ''
}

function show(event) {
  if (build && build !== event.build) return location.reload() // the node was upgraded
  build = event.build
  attempts = 0
  skew = event.now - Date.now()
  linked('live', 'Live')
  const focus = document.activeElement && document.activeElement.id
  for (const part of event.parts ?? []) {
    const place = $(part.id)
    if (!place) continue
    const next = document.createElement(place.tagName)
    next.innerHTML = part.html // written by the node's templates, which escape all that was sent
    children(place, next)
  }
  const name = document.querySelector('#node .name')
  shown ||= performance.now()
  if (name) document.title = name.textContent + ' · edge'
  if (focus && (!document.activeElement || document.activeElement === document.body) && $(focus)) $(focus).focus()
  if (listen.tell && $('story-title')) { $('story-title').focus(); listen.tell = false }
  count()
}

// children replaces the children of old with those of next. Those that match stay, with focus and selection.
function children(old, next) {
  const named = new Map()
  for (const child of old.children) if (child.id) named.set(child.id, child)
  let at = old.firstChild
  for (const want of [...next.childNodes]) {
    const have = want.id ? named.get(want.id) : null
    if (have) {
      if (have !== at) old.insertBefore(have, at)
      same(have, want)
      at = have.nextSibling
    } else if (at && !want.id && !at.id && at.nodeType === want.nodeType && at.nodeName === want.nodeName) {
      same(at, want)
      at = at.nextSibling
    } else {
      old.insertBefore(want, at)
    }
  }
  while (at) {
    const gone = at
    at = at.nextSibling
    gone.remove()
  }
}

function same(old, next) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== next.data) old.data = next.data
    return
  }
  const counts = old.dataset.end && old.dataset.end === next.dataset.end
  for (const {name} of [...old.attributes]) if (!next.hasAttribute(name) && !(name === 'open' && old.nodeName === 'DETAILS')) old.removeAttribute(name)
  for (const {name, value} of next.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value)
  if (!counts) children(old, next)
}

// count writes how long mitigations still last, as left in parts.go does.
function count() {
  const now = Date.now() + skew
  for (const e of document.querySelectorAll('[data-end]')) {
    const s = Math.max(0, Math.ceil((e.dataset.end - now) / 1000))
    const d = Math.floor(s / 86400), h = Math.floor(s / 3600), m = Math.floor(s / 60) % 60
    const two = n => String(n).padStart(2, '0')
    const text = d ? `${d}d ${h % 24}h` : h ? `${h}h ${two(m)}m` : m ? `${m}m ${two(s % 60)}s` : `${s}s`
    if (e.textContent !== text) e.textContent = text
  }
}
setInterval(count, 1000)

// look shows another view, and keeps it in the address bar.
function look(changes) {
  for (const [name, value] of Object.entries(changes)) {
    if (value) view.set(name, value)
    else view.delete(name)
  }
  $('first').hidden = !view.get('cursor')
  const query = String(view)
  history.replaceState(null, '', location.pathname + (query ? '?' + query : ''))
  attempts = 0
  listen()
}

function ask(target) {
  $('target').value = target
  listen.tell = target !== ''
  look({ask: target})
  if (!target) $('target').focus()
}

$('ask').addEventListener('submit', e => {
  e.preventDefault()
  ask($('target').value.trim())
})
$('login').addEventListener('submit', e => {
  e.preventDefault()
  sessionStorage.setItem(secret, $('token').value.trim())
  $('token').value = ''
  attempts = 0
  listen()
})
$('span').addEventListener('change', e => look({span: e.target.value === '15m' ? '' : e.target.value}))
$('filter').addEventListener('submit', e => e.preventDefault())
$('filter').addEventListener('change', e => { if (e.target.id === 'rule') filter(0) })
$('filter').addEventListener('input', e => {
  const rule = $('rule').value
  if (e.target.id !== 'rule' || !rule || [...$('rule-names').options].some(o => o.value === rule)) filter(e.target.tagName === 'SELECT' ? 0 : 250)
})
function filter(pause) {
  clearTimeout(look.timer)
  look.timer = setTimeout(() => look({
    search: $('search').value.trim(), rule: $('rule').value.trim(), state: $('state').value, all: $('state').value ? '' : '1', sort: $('sort').value, cursor: '',
  }), pause)
}
$('first').addEventListener('click', () => { look({cursor: ''}); $('mitigations').focus() })

document.addEventListener('click', e => {
  const button = e.target.closest('button')
  if (!button) return
  const {ask: target, fill, lift, cursor} = button.dataset
  if (target) ask(target)
  if (fill) { $('target').value = fill; $('target').focus() }
  if (lift) offer({key: lift}, `Lift ${button.dataset.who}${button.dataset.rule ? ', rule ' + button.dataset.rule : ''}?`, button.dataset.why)
  if (cursor) { look({cursor}); $('mitigations').focus() }
  if (button.id === 'close-story') ask('')
  if (button.id === 'lift-all') {
    const {rule, client} = button.dataset
    offer({rule, client}, `Lift all mitigations${rule ? ' of rule ' + rule : ''}${client ? ' of clients in ' + client : ''}?`, '')
  }
})

let offered = null // the mitigations that the dialog offers to lift
function offer(what, title, why) {
  offered = {what, sure: !!what.key}
  $('lift-title').textContent = title
  $('lift-why').textContent = why || ''
  $('lift-problem').textContent = ''
  $('reason').value = $('lift-secret').value = ''
  $('lift-token').hidden = !!sessionStorage.getItem(secret)
  $('lift-do').textContent = offered.sure ? 'Lift' : 'Count them first'
  $('lift-do').disabled = false
  $('lift').showModal()
}
$('lift-cancel').addEventListener('click', () => $('lift').close())
$('lift').addEventListener('close', () => {
  // The event comes later than the closing: the dialog may be open again, and hold new text.
  if ($('lift').open) return
  $('reason').value = $('lift-secret').value = ''
  if (document.activeElement === document.body || !document.activeElement) $('mitigations').focus({preventScroll: true})
})
$('lift').querySelector('form').addEventListener('submit', async e => {
  e.preventDefault()
  if ($('lift-secret').value.trim()) sessionStorage.setItem(secret, $('lift-secret').value.trim())
  const {what, sure} = offered
  const body = new URLSearchParams(Object.entries(what).filter(([, value]) => value))
  if ($('reason').value.trim()) body.set('reason', $('reason').value.trim())
  if (!what.key && !sure) body.set('dry_run', 'true')
  $('lift-do').disabled = true
  try {
    const answer = await fetch('api/v1/mitigations/' + (what.key ? 'lift' : 'lift-all'), {method: 'POST', headers: {...headers(), 'Content-Type': 'application/x-www-form-urlencoded'}, body: String(body)})
    const result = await answer.json()
    if (answer.status === 401) {
      sessionStorage.removeItem(secret)
      $('lift-token').hidden = false
      $('lift-secret').focus()
      throw new Error('Changes need a valid token.')
    }
    if (!answer.ok) throw new Error(result.error)
    const many = n => n.toLocaleString('en') + (n === 1 ? ' mitigation' : ' mitigations')
    if (!what.key && !sure) {
      offered.sure = true
      $('lift-why').textContent = `This lifts ${many(result.mitigations)}, on all nodes.` + (result.unknown ? ` ${many(result.unknown)} of an unknown rule or client will stay.` : '')
      $('lift-do').textContent = 'Lift ' + result.mitigations.toLocaleString('en')
      $('lift-token').hidden = true
    } else {
      $('lift').close()
      say(what.key ? 'Lifted on all nodes.' : `Lifted ${many(result.mitigations)} on all nodes.`)
    }
  } catch (problem) {
    $('lift-problem').textContent = problem.message
  }
  $('lift-do').disabled = false
})

document.addEventListener('visibilitychange', () => { attempts = 0; listen() })
addEventListener('pagehide', () => { if (stream) { const old = stream; stream = null; old.abort() } })
addEventListener('pageshow', e => { if (e.persisted) listen() })

// The address bar has the current view.
$('target').value = view.get('ask') ?? ''
$('search').value = view.get('search') ?? ''
$('rule').value = view.get('rule') ?? ''
$('state').value = view.get('all') ? '' : view.get('state') || 'active'
$('sort').value = view.get('sort') ?? ''
$('first').hidden = !view.get('cursor')
for (const radio of $('span').querySelectorAll('input')) radio.checked = radio.value === (view.get('span') || '15m')
listen()
