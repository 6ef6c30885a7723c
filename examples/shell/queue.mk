# A work queue for local development: copy this file and `include queue.mk` in your Makefile.
#
#     make queue-start      starts this project's queue in the background, unless it is running
#     make queue-wait       waits until the queue listens (at most QUEUE_WAIT seconds)
#     make queue-stop       stops the queue
#     $$(cat $(QUEUE_DIR)/port)    in a recipe, the queue's port
#
# QUEUE_PORT=0, the default, selects any free port, so that projects do not conflict. With QUEUE_OPTIONS='-b $(QUEUE_DIR)/jobs',
# jobs survive a restart of the queue.

BEANPOLE ?= beanpole
QUEUE_DIR ?= .queue
QUEUE_PORT ?= 0
QUEUE_OPTIONS ?=
QUEUE_WAIT ?= 10

# Succeeds if the process with the ID in the file `pid` is this queue. After a reboot, another process can have this ID,
# but only the command line of the queue contains the path of this directory's port file.
QUEUE_FILE = "$$(cd '$(QUEUE_DIR)' && pwd)/port"
QUEUE_RUNS = pid=$$(cat '$(QUEUE_DIR)/pid' 2>/dev/null) && kill -0 "$$pid" 2>/dev/null && \
	{ tr '\0' ' ' <"/proc/$$pid/cmdline" || ps -o args= -p "$$pid"; } 2>/dev/null | grep -qF -e "--port-file "$(QUEUE_FILE)

.PHONY: queue-start queue-wait queue-stop

queue-start:
	@mkdir -p '$(QUEUE_DIR)'
	@if $(QUEUE_RUNS); then \
	    echo "the queue is already running on port $$(cat '$(QUEUE_DIR)/port')"; \
	else \
	    rm -f '$(QUEUE_DIR)/port'; \
	    nohup $(BEANPOLE) -p $(QUEUE_PORT) --port-file $(QUEUE_FILE) $(QUEUE_OPTIONS) \
	        >'$(QUEUE_DIR)/log' 2>&1 </dev/null & echo $$! >'$(QUEUE_DIR)/pid'; \
	    $(MAKE) -s queue-wait && echo "the queue listens on port $$(cat '$(QUEUE_DIR)/port')"; \
	fi

queue-wait:
	@tries=$$(($(QUEUE_WAIT) * 10)); until [ -s '$(QUEUE_DIR)/port' ]; do \
	    kill -0 "$$(cat '$(QUEUE_DIR)/pid' 2>/dev/null)" 2>/dev/null || { cat '$(QUEUE_DIR)/log' >&2; exit 1; }; \
	    tries=$$((tries - 1)); [ $$tries -gt 0 ] || { echo 'the queue is not listening yet' >&2; exit 1; }; \
	    sleep 0.1; \
	done

queue-stop:
	@if $(QUEUE_RUNS); then kill "$$pid"; while kill -0 "$$pid" 2>/dev/null; do sleep 0.1; done; fi; rm -f '$(QUEUE_DIR)/pid'
