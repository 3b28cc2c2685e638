"""A Compose file and Kubernetes manifests with most of the keys that an import maps."""

SHOP = """
name: shop
x-common: &common
  restart: unless-stopped
  labels: {team: shop}
services:
  web:
    <<: *common
    image: "nginx:1.27"
    ports: ["8080:80", 22:22/udp]
    depends_on:
      api: {condition: service_healthy}
    volumes:
      - ./site:/usr/share/nginx/html:ro
      - /var/run/docker.sock:/var/run/docker.sock
      - cache:/var/cache/nginx
    configs: [{source: greeting, target: /etc/greeting}]
    deploy:
      replicas: 2
      resources: {limits: {cpus: "0.50", memory: 50M}}
  api:
    build: {context: ./api, target: release, args: {GO: 1.22}}
    command: serve --name "a {b}"
    environment:
      - no=no
      - FROM_SHELL
      - NEVER_SET
    env_file: [{path: api.env}, {path: absent.env, required: false}]
    working_dir: /srv
    expose: [9000]
    healthcheck: {test: 'curl -f http://localhost:9000/{health}', interval: 5s, start_period: 1m}
    networks: {back: {aliases: [backend.internal]}, front: {}}
    privileged: true
  worker:
    build: {context: ./api}
    entrypoint: []
    command: [work]
    healthcheck: {disable: true}
    depends_on: [api, queue]
    privileged: true
    networks: {back: {aliases: [backend.internal]}}
  queue:
    image: redis:7
    container_name: shop_queue
    healthcheck: {test: [CMD, redis-cli, ping]}
  debug:
    image: busybox
    profiles: [debug]
networks: {back: {}, front: {}}
volumes: {cache: {}}
configs: {greeting: {content: "hello $$you\\n"}}
"""

GUESTBOOK = """
apiVersion: v1
kind: Service
metadata: {name: frontend}
spec:
  type: LoadBalancer
  ports: [{port: 80, targetPort: web}]
  selector: {app: guestbook}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: guestbook, namespace: default, labels: {app: guestbook}}
spec:
  replicas: 3
  selector: {matchLabels: {app: guestbook}}
  template:
    metadata: {labels: {app: guestbook, tier: frontend}}
    spec:
      serviceAccountName: guestbook
      nodeSelector: {disk: ssd}
      volumes:
        - {name: settings, configMap: {name: settings, items: [{key: app.ini, path: conf.ini}]}}
        - {name: scratch, emptyDir: {}}
      containers:
        - name: php
          image: example/guestbook:v5
          command: [serve]
          args: ["--listen=$(HOST):8080", "$$(HOST)"]
          env:
            - {name: HOST, value: 0.0.0.0}
            - {name: SELF, value: "http://$(ADDRESS):8080"}
            - {name: ADDRESS, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
            - {name: COLOUR, valueFrom: {configMapKeyRef: {name: settings, key: colour}}}
            - {name: PASSWORD, valueFrom: {secretKeyRef: {name: keys, key: password}}}
            - {name: MISSING, valueFrom: {secretKeyRef: {name: other, key: x}}}
          envFrom: [{configMapRef: {name: more}, prefix: P_}]
          ports: [{containerPort: 80, name: web}]
          resources: {requests: {cpu: 100m}, limits: {cpu: 500m, memory: 128Mi}}
          readinessProbe: {httpGet: {path: /ready, port: web}, periodSeconds: 5}
          volumeMounts: [{name: settings, mountPath: /etc/app}, {name: scratch, mountPath: /tmp/x}]
        - name: sidecar
          image: example/logs
          ports: [{containerPort: 9000, name: logs}]
          args: ["http://localhost:80/x", "127.0.0.1:9000", "localhost:8080"]
---
apiVersion: v1
kind: List
items:
  - {apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {colour: "no", app.ini: "[a]"}}
  - {apiVersion: v1, kind: ConfigMap, metadata: {name: more}, data: {X: "1"}}
  - {apiVersion: v1, kind: Secret, metadata: {name: keys}, data: {password: aHVzaA==}}
---
---
apiVersion: v1
kind: Pod
metadata: {name: load, labels: {app: load}}
spec: {restartPolicy: Never, containers: [{name: load, image: example/load}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: public}
spec: {}
"""
